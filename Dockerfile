# Targets: asyncflow (the default), thumbnails (the sample worker), and setup (asyncflow with a
# shell, for the one-shot set-up in docker-compose.yml).

FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ENV CGO_ENABLED=0
RUN go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/asyncflow ./cmd/asyncflow
RUN go build -trimpath -ldflags "-s -w" -o /out/thumbnails ./examples/thumbnails/cmd/thumbnails
# The file system of the images below: certificates, a user, and the sample worker's folders.
RUN mkdir -p /rootfs/etc/ssl/certs /data/images /data/thumbnails \
 && cp /etc/ssl/certs/ca-certificates.crt /rootfs/etc/ssl/certs/ \
 && echo 'nonroot:x:65532:65532::/:/nonexistent' > /rootfs/etc/passwd \
 && echo 'nonroot:x:65532:' > /rootfs/etc/group

FROM scratch AS thumbnails
COPY --from=build /rootfs/ /
COPY --from=build --chown=65532:65532 /data/ /data/
COPY --from=build /out/thumbnails /thumbnails
USER 65532:65532
ENV THUMBNAILS_ADDR=:8081 THUMBNAILS_IMAGES=/data/images THUMBNAILS_OUT=/data/thumbnails
EXPOSE 8081
ENTRYPOINT ["/thumbnails"]

FROM busybox:1.37 AS setup
COPY --from=build /rootfs/ /
COPY --from=build /out/asyncflow /bin/asyncflow
WORKDIR /app
COPY examples/thumbnails/asyncflow.yaml examples/thumbnails/asyncflow.yaml
USER 65532:65532
ENTRYPOINT ["/bin/sh", "-euc"]

FROM scratch AS asyncflow
COPY --from=build /rootfs/ /
COPY --from=build /out/asyncflow /asyncflow
USER 65532:65532
EXPOSE 8080
# The check asks ASYNCFLOW_URL, or http://127.0.0.1:8080. Set it when ASYNCFLOW_LISTEN has another
# port.
HEALTHCHECK --interval=5s --timeout=6s --start-period=30s CMD ["/asyncflow", "healthcheck"]
ENTRYPOINT ["/asyncflow"]
CMD ["serve"]
