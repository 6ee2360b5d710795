# Targets: asyncflow (the default), thumbnails (the sample worker), and setup (asyncflow with a
# shell, for the one-shot set-up in docker-compose.yml).

FROM golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d AS build
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

FROM busybox:1.37.0@sha256:9db7b59979c38555a39def84a31fb98b5296952f9e3afd4f6f11f05b07adfab0 AS setup
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
