package httpapi

import "github.com/gofiber/fiber/v2"

// Routes returns what the framework has registered.
func (s *Server) Routes() []fiber.Route { return s.app.GetRoutes(true) }
