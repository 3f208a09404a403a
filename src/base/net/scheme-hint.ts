// Says after a failed HTTP request that the port may speak TLS, or may not. Also runs in browsers.

/** Of a server that closes the connection instead of an answer, as one with TLS does. */
const CLOSED: ReadonlySet<unknown> = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);
/** Of an answer that is not TLS. */
const NO_TLS = /wrong version number|packet length too long/i;

/** A clause for the end of the error's message, or an empty text. */
export function hintAtScheme(cause: unknown, url: string): string {
  if (!(cause instanceof Error)) return '';
  const isTls = url.startsWith('https:');
  const code = 'code' in cause ? cause.code : undefined;
  if (!isTls && CLOSED.has(code)) return '; if the port needs TLS, use an https:// URL';
  if (isTls && NO_TLS.test(cause.message))
    return '; the port does not speak TLS, use an http:// URL';
  return '';
}
