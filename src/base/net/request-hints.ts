// Explains a failed HTTP request: the answer is a redirect, the port needs TLS or does not speak it, or its certificate is
// not trusted. Also runs in browsers.

const MAX_URL_CHARS = 300;

interface RedirectFacts {
  /** 0: a browser does not tell. */
  status: number;
  location: string | null | undefined;
  url: string;
  /** End of its path that names the operation; a redirect that keeps it moves the whole platform. */
  path: string;
}

/** A text for the end of an error; undefined: the answer is no redirect. */
export function describeRedirect({
  location,
  path,
  status,
  url,
}: RedirectFacts): string | undefined {
  if (status !== 0 && ![301, 302, 303, 307, 308].includes(status)) return undefined;
  const target = location ? URL.parse(location, url) : null;
  const code = status === 0 ? '' : ` (${status})`;
  if (!target) return `${new URL(url).origin} redirects${code}; use the URL that it redirects to`;
  // Without the query, which may be secret.
  const place = target.origin + target.pathname;
  const isMove = target.pathname.endsWith(path);
  const shown = (isMove ? place.slice(0, -path.length) : place).slice(0, MAX_URL_CHARS);
  const advice = isMove ? 'use that URL' : 'use the URL of the platform itself';
  return `${new URL(url).origin} redirects${code} to ${shown}; ${advice}`;
}

/** Errors if the server closes the connection without an answer, as one with TLS does. */
const CLOSED: ReadonlySet<unknown> = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);
/** Errors of TLS about an answer in plain text. */
const NO_TLS = /wrong version number|packet length too long/i;

/** Returns a clause to append to the error's message, or an empty text. */
export function hintAtScheme(cause: unknown, url: string): string {
  if (!(cause instanceof Error)) return '';
  const isTls = url.startsWith('https:');
  const code = 'code' in cause ? cause.code : undefined;
  if (!isTls && CLOSED.has(code)) return '; if the port needs TLS, use an https:// URL';
  if (isTls && NO_TLS.test(cause.message))
    return '; the port does not speak TLS, use an http:// URL';
  return '';
}

/** Texts of OpenSSL, with the advice that Node adds to some. */
const UNTRUSTED =
  /(self-signed certificate(?: in certificate chain)?|unable to (?:verify the first certificate|get (?:local )?issuer certificate))(?:; if the root CA is installed locally, try running Node\.js with --use-system-ca)?/;

/** Replaces Node's advice about a certificate that no trusted authority has signed. */
export function adviseTrust(reason: string, advice: string): string {
  return reason.replace(UNTRUSTED, `$1; ${advice}`);
}

/** For workers. */
export const TRUST_ADVICE = 'give the worker --ca FILE';

/** Describes a failure with the system's error code, if any. */
export function describeCallFailure(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  const code = 'code' in cause && typeof cause.code === 'string' ? cause.code : undefined;
  // A connection that is refused on several addresses has an error without a message.
  const first = cause instanceof AggregateError ? cause.errors[0] : undefined;
  const words = cause.message.trim() || (first instanceof Error ? first.message : cause.name);
  return code && !words.includes(code) ? `${words} (${code})` : words;
}
