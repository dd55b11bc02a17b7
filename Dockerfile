# The broker as an image: compiled JavaScript, no build tools, no root.
ARG NODE_IMAGE=node:24-bookworm-slim

FROM ${NODE_IMAGE} AS build
WORKDIR /build
COPY package.json package-lock.json ./
# The image brings Node 24 itself, so the copies among the optional dependencies stay out.
RUN npm ci --omit=optional --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json ./
COPY src src
RUN node node_modules/typescript/bin/tsc -p tsconfig.build.json \
 && npm prune --omit=dev --omit=optional --no-audit --no-fund

FROM ${NODE_IMAGE}
# ca-certificates: upstreams are verified against the system's roots, which the slim image lacks.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 octroi \
 && useradd --uid 10001 --gid octroi --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin octroi \
 && install -d -o octroi -g octroi -m 0700 /var/lib/octroi \
 && install -d -o octroi -g octroi -m 0755 /srv/octroi /srv/octroi/certs /srv/octroi/certs/sandbox
WORKDIR /opt/octroi
COPY --from=build /build/package.json ./
COPY --from=build /build/node_modules node_modules
COPY --from=build /build/dist dist
COPY bin bin
COPY config config
ENV NODE_ENV=production OCTROI_CONFIG=/etc/octroi/octroi.yaml
USER 10001:10001
# State holds the sealed secrets, the event log and the key of the CA: owner-only, never in a sandbox.
VOLUME ["/var/lib/octroi"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "/opt/octroi/bin/octroi.js"]
CMD ["serve"]
