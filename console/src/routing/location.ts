// The page's address: which page the path names, and moves between pages without loading the document again.
import { createStore } from '../parts/store.ts';

/** Path of the console on the platform. */
export const BASE = '/console';

export interface Place {
  /** Below BASE: `/endpoints/echo`. */
  path: string;
  query: URLSearchParams;
}

export const place = createStore<Place>(readPlace());

function readPlace(): Place {
  const { pathname, search } = window.location;
  const below = pathname.startsWith(BASE) ? pathname.slice(BASE.length) : pathname;
  return { path: below.replace(/\/+$/, '') || '/', query: new URLSearchParams(search) };
}

/** `to`: a path below BASE, with its query. */
export function go(to: string, how: 'push' | 'replace' = 'push'): void {
  const url = BASE + (to === '/' ? '/' : to);
  if (how === 'push') history.pushState(null, '', url);
  else history.replaceState(null, '', url);
  const before = place.read().path;
  place.write(readPlace());
  if (before !== place.read().path) window.scrollTo(0, 0);
}

/** Fills `:name` segments, percent-encoded. */
export function hrefOf(path: string): string {
  return BASE + (path === '/' ? '/' : path);
}

/** Makes links within the console change the place only. */
export function followLinks(): void {
  window.addEventListener('popstate', () => place.write(readPlace()));
  document.addEventListener('click', (event) => {
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey;
    // Of HTML, or of a drawing in SVG.
    const link = event.target instanceof Element ? event.target.closest('a[href]') : null;
    if (!link || !isPlain || event.defaultPrevented) return;
    const url = new URL(link.getAttribute('href') ?? '', document.baseURI);
    const isOurs = url.origin === window.location.origin && url.pathname.startsWith(`${BASE}/`);
    if (!isOurs || link.hasAttribute('target') || link.hasAttribute('download')) return;
    if (url.hash !== '' && url.pathname === window.location.pathname) return;
    event.preventDefault();
    go(url.pathname.slice(BASE.length) + url.search);
  });
}
