import type { Access } from '../handles/model.ts'
import type { Cidr } from '../policy/address.ts'
import type { Rule } from '../policy/model.ts'

/** Where a secret value is kept; the value itself is never in a configuration file. */
export type ValueRef =
  | { readonly kind: 'env'; readonly name: string }
  /** Absolute path. */
  | { readonly kind: 'file'; readonly path: string }
  /** Name in the sealed store. */
  | { readonly kind: 'secret'; readonly name: string }
  /** Program and arguments, run without a shell; stdout is the value. */
  | { readonly kind: 'command'; readonly argv: readonly string[] }

/** Where the proxy listens. Port `0` means any free one. */
export type ProxyListener =
  | {
      readonly kind: 'tcp'
      /** IP literal. */
      readonly host: string
      readonly port: number
      /** TLS between client and broker (`https://HOST:PORT`). */
      readonly tls: boolean
      /** Opened for the `port` proof of one or more sandboxes, not by `listen.proxy`. */
      readonly identity: boolean
    }
  | {
      readonly kind: 'unix'
      /** Absolute, at most 107 bytes. */ readonly path: string
      readonly identity: boolean
    }

/** Where the admin API listens. */
export interface AdminListener {
  /** Loopback IP literal. */
  readonly host: string
  readonly port: number
}

/** A static root credential. */
export interface CredentialConfig {
  readonly name: string
  readonly issuer: 'static'
  readonly value: ValueRef
  /** Values under 64 bits or 12 characters are accepted, and then matched whole only. */
  readonly allowShort: boolean
}

/** Limits as one template or sandbox writes them; `undefined` leaves them to the other level or the default. */
export interface LimitsConfig {
  readonly tunnels: number | undefined
  readonly requests: number | undefined
  readonly requestsPerMinute: number | undefined
  readonly bodyBytes: number | undefined
  readonly responseBytes: number | undefined
}

/** What templates and sandboxes have in common. */
export interface PolicyBlock {
  readonly allow: readonly Rule[]
  readonly deny: readonly Rule[]
  /** Names of accesses. */
  readonly access: readonly string[]
  readonly limits: LimitsConfig
}

/** What sandboxes are made from. */
export interface TemplateConfig extends PolicyBlock {
  readonly name: string
  readonly tenant: string
  /** Longest life of a sandbox made from it at run time, `ms`; `undefined` means no bound. */
  readonly maxTtlMs: number | undefined
}

/** One proof of identity; within one alternative every proof must hold. */
export type ProofConfig =
  | { readonly kind: 'token' }
  | { readonly kind: 'socket'; readonly path: string }
  | { readonly kind: 'port'; readonly port: number }
  | { readonly kind: 'source'; readonly range: Cidr }
  /** Lower-case hex SHA-256 of the certificate's DER. */
  | { readonly kind: 'client_certificate'; readonly sha256: string }

/** A sandbox that the files define. */
export interface SandboxConfig extends PolicyBlock {
  readonly name: string
  readonly template: string | undefined
  readonly agent: string | undefined
  readonly tenant: string
  readonly identity: readonly (readonly ProofConfig[])[]
  /** Where the proxy password comes from; `undefined` when no alternative has a token. */
  readonly token: 'generated' | ValueRef | undefined
}

/** How events are kept. */
export interface AuditConfig {
  /** How long events are kept, `ms`; `undefined` means for ever. */
  readonly retentionMs: number | undefined
  readonly sync: 'full' | 'normal'
  /** Most events kept; `undefined` means no bound. */
  readonly maxEvents: number | undefined
}

/** The configuration of all files: checked, canonical, frozen. */
export interface Config {
  /** The main file, absolute. */
  readonly file: string
  /** The main file and every included one, absolute. */
  readonly files: readonly string[]
  /** Patterns of `include`, absolute; for the watcher. */
  readonly includes: readonly string[]
  /** Folder that relative paths resolve against. */
  readonly root: string
  readonly stateFolder: string
  readonly listen: { readonly proxy: readonly ProxyListener[]; readonly admin: AdminListener }
  readonly resolver: {
    /** `system`, or `ADDRESS:PORT` of DNS servers. */
    readonly servers: readonly string[]
    /** Fixed answers by canonical name; judged like any other answer. */
    readonly hosts: ReadonlyMap<string, readonly string[]>
  }
  /** What upstreams are verified against: the system's roots and PEM files. */
  readonly trust: { readonly system: boolean; readonly ca: readonly string[] }
  readonly credentials: ReadonlyMap<string, CredentialConfig>
  readonly access: ReadonlyMap<string, Access>
  readonly templates: ReadonlyMap<string, TemplateConfig>
  readonly sandboxes: ReadonlyMap<string, SandboxConfig>
  /** Canonical names under which the broker itself is known. */
  readonly selfNames: readonly string[]
  readonly audit: AuditConfig
}
