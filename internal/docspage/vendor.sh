#!/bin/sh
# Puts Swagger UI of a pinned version into assets/. Run it by go generate ./internal/docspage.
set -eu
version=5.35.0
integrity=U06rpMtW9V3XPGOBeamTUSr0Z09jMX4IJuANpE/EZbAhw0G8CgwrzU4YmXkn/h0wCDNsXdGarTNNHC3sU8yVUQ==

cd "$(dirname "$0")/assets"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
npm pack --silent --pack-destination "$tmp" "swagger-ui-dist@$version" >/dev/null
tar=$tmp/swagger-ui-dist-$version.tgz
[ "$(openssl dgst -sha512 -binary "$tar" | openssl base64 -A)" = "$integrity" ]
tar xzf "$tar" -C "$tmp"
for file in swagger-ui-bundle.js swagger-ui.css; do
	gzip -9nc "$tmp/package/$file" >"$file.gz"
done
(cd "$tmp/package" && cat NOTICE LICENSE swagger-ui-bundle.js.LICENSE.txt) | gzip -9nc >LICENSE.txt.gz
