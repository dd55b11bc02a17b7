import { execFileSync } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { OperatorError } from '../../src/core/errors.ts'
import { formatEnvironment } from '../../src/sandbox/env-format.ts'
import { sandboxEnvironment } from '../../src/sandbox/environment.ts'
import type { EnvironmentInput } from '../../src/sandbox/environment.ts'

const input: EnvironmentInput = {
  proxyScheme: 'http',
  proxyHost: '127.0.0.1',
  proxyPort: 18080,
  login: { user: 'coder-1', token: 'tok' },
  bundlePath: '/c/bundle.pem',
  caPath: '/c/ca.pem',
  javaTrustStore: '/c/bundle.jks',
  aptConf: '/c/apt.conf',
  placeholders: [{ env: 'GITHUB_TOKEN', placeholder: 'ghp_octroi0123456789ABCDEFGHIJKLMN' }],
}

const url = 'http://coder-1:tok@127.0.0.1:18080'
const java =
  '-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=18080 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=18080 ' +
  '-Dhttp.nonProxyHosts=localhost|127.0.0.1|[::1] ' +
  '-Djavax.net.ssl.trustStore=/c/bundle.jks -Djavax.net.ssl.trustStoreType=JKS'

describe('sandboxEnvironment', () => {
  it('sets exactly these variables', () => {
    expect(sandboxEnvironment(input)).toEqual({
      HTTP_PROXY: url,
      http_proxy: url,
      HTTPS_PROXY: url,
      https_proxy: url,
      ALL_PROXY: url,
      all_proxy: url,
      GRPC_PROXY: url,
      grpc_proxy: url,
      NO_PROXY: 'localhost,127.0.0.1,::1',
      no_proxy: 'localhost,127.0.0.1,::1',
      NODE_USE_ENV_PROXY: '1',
      NODE_EXTRA_CA_CERTS: '/c/ca.pem',
      SSL_CERT_FILE: '/c/bundle.pem',
      CURL_CA_BUNDLE: '/c/bundle.pem',
      REQUESTS_CA_BUNDLE: '/c/bundle.pem',
      PIP_CERT: '/c/bundle.pem',
      AWS_CA_BUNDLE: '/c/bundle.pem',
      GIT_SSL_CAINFO: '/c/bundle.pem',
      CARGO_HTTP_CAINFO: '/c/bundle.pem',
      DENO_CERT: '/c/bundle.pem',
      npm_config_cafile: '/c/bundle.pem',
      CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE: '/c/bundle.pem',
      NIX_SSL_CERT_FILE: '/c/bundle.pem',
      PERL_LWP_SSL_CA_FILE: '/c/bundle.pem',
      HTTPLIB2_CA_CERTS: '/c/bundle.pem',
      GRPC_DEFAULT_SSL_ROOTS_FILE_PATH: '/c/bundle.pem',
      GIT_CONFIG_PARAMETERS: "'http.proxyAuthMethod=basic'",
      APT_CONFIG: '/c/apt.conf',
      JAVA_TOOL_OPTIONS: java,
      CLOUDSDK_PROXY_TYPE: 'http',
      CLOUDSDK_PROXY_ADDRESS: '127.0.0.1',
      CLOUDSDK_PROXY_PORT: '18080',
      CLOUDSDK_PROXY_USERNAME: 'coder-1',
      CLOUDSDK_PROXY_PASSWORD: 'tok',
      GITHUB_TOKEN: 'ghp_octroi0123456789ABCDEFGHIJKLMN',
    })
  })

  it('leaves private ranges and metadata addresses to the broker', () => {
    const { NO_PROXY = '' } = sandboxEnvironment(input)
    expect(NO_PROXY).not.toMatch(/10\.|172\.|192\.168|169\.254|\*|internal/)
  })

  it('puts no credentials anywhere when the sandbox has another proof', () => {
    const env = sandboxEnvironment({ ...input, login: undefined })
    expect(env['HTTPS_PROXY']).toBe('http://127.0.0.1:18080')
    expect(Object.keys(env).filter((name) => /USERNAME|PASSWORD/.test(name))).toEqual([])
  })

  it('brackets an IPv6 address and escapes credentials in the URL only', () => {
    const env = sandboxEnvironment({
      ...input,
      proxyHost: 'fd00::1',
      login: { user: 'a b', token: 'p@ss/:' },
    })
    const parsed = new URL(env['HTTPS_PROXY'] ?? '')
    expect(parsed.hostname).toBe('[fd00::1]')
    expect(decodeURIComponent(parsed.password)).toBe('p@ss/:')
    expect(env['CLOUDSDK_PROXY_PASSWORD']).toBe('p@ss/:')
    expect(env['CLOUDSDK_PROXY_ADDRESS']).toBe('fd00::1')
  })

  it('keeps inherited options of Java in front of its own', () => {
    expect(sandboxEnvironment({ ...input, javaToolOptions: '-Xmx1g' })['JAVA_TOOL_OPTIONS']).toBe(
      `-Xmx1g ${java}`,
    )
  })

  it('leaves the trust of Java and apt alone when there are no files for them', () => {
    const env = sandboxEnvironment({ ...input, javaTrustStore: undefined, aptConf: undefined })
    expect(env['JAVA_TOOL_OPTIONS']).not.toContain('trustStore')
    expect(env).not.toHaveProperty('APT_CONFIG')
  })
})

describe('formatEnvironment', () => {
  const nasty = { A: 'it\'s $HOME `x` "y"', GIT: "'http.proxyAuthMethod=basic'", EMPTY: '', PIPE: 'a|[::1]' }

  it('prints what a shell reads back as the same values', () => {
    const script = `${formatEnvironment(nasty, 'sh')}\nprintf '%s\\n' "$A" "$GIT" "$EMPTY" "$PIPE"`
    const printed = execFileSync('/bin/sh', ['-c', script], { encoding: 'utf8', env: { HOME: '/h' } })
    expect(printed).toBe(`${Object.values(nasty).join('\n')}\n`)
  })

  it('prints one JSON object, and for MCP clients the env member', () => {
    expect(JSON.parse(formatEnvironment(nasty, 'json'))).toEqual(nasty)
    expect(JSON.parse(formatEnvironment(nasty, 'mcp'))).toEqual({ env: nasty })
  })

  it('prints an env file without quotes, and refuses a value that it cannot hold', () => {
    expect(formatEnvironment({ A: "'x' y" }, 'docker')).toBe("A='x' y")
    expect(() => formatEnvironment({ A: 'x\ny' }, 'docker')).toThrow(OperatorError)
  })

  it('refuses a name that would be code in a shell', () => {
    expect(() => formatEnvironment({ 'A;rm -rf': 'x' }, 'sh')).toThrow(OperatorError)
  })
})
