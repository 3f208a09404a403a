// Says where a redirect points. Clients of the platform follow none: a POST would become a GET, and another origin must
// see neither keys nor bodies. Also runs in browsers.

const MAX_URL_CHARS = 300;

export interface RedirectFacts {
  /** 0: a browser does not tell. */
  status: number;
  location: string | null | undefined;
  /** URL of the request. */
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
