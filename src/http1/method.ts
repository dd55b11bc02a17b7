/**
 * Methods that are not relayed whatever a rule says: TRACE and its kin return the request with its credentials, CONNECT
 * inside a tunnel would open another that nobody judges.
 */
export const neverRelayed: ReadonlySet<string> = new Set(['TRACE', 'TRACK', 'DEBUG', 'CONNECT'])
