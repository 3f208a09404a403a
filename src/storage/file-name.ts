// Chooses a file name for a download that is safe on every file system, and keeps the extension.
import { extname } from 'node:path';

const MAX_CHARS = 100;
const MAX_EXTENSION_CHARS = 16;
/** For servers that name no file. */
const EXTENSIONS: ReadonlyMap<string, string> = new Map([
  ['application/json', '.json'],
  ['application/pdf', '.pdf'],
  ['application/zip', '.zip'],
  ['audio/mpeg', '.mp3'],
  ['audio/wav', '.wav'],
  ['image/gif', '.gif'],
  ['image/jpeg', '.jpg'],
  ['image/png', '.png'],
  ['image/webp', '.webp'],
  ['text/plain', '.txt'],
  ['video/mp4', '.mp4'],
]);

export interface NamedAnswer {
  url: URL;
  contentDisposition: string | undefined;
  contentType: string | undefined;
}

/**
 * The name in the Content-Disposition header, else the last segment of the URL's path, else `file`. It has letters,
 * digits, `.`, `_` and `-` only, at most 100, and does not begin with a dot or a dash.
 */
export function chooseFileName({ contentDisposition, contentType, url }: NamedAnswer): string {
  const stated = readDisposition(contentDisposition);
  const name = clean(stated ?? '') || clean(decode(url.pathname.split('/').at(-1) ?? '')) || 'file';
  if (extname(name) !== '') return name;
  const type = contentType?.split(';')[0]?.trim().toLowerCase() ?? '';
  return `${name}${EXTENSIONS.get(type) ?? ''}`;
}

/** `filename*` (RFC 5987) wins over `filename`. */
function readDisposition(header: string | undefined): string | undefined {
  if (header === undefined) return undefined;
  const extended = /;\s*filename\*=utf-8'[^']*'([^;\s]+)/i.exec(header)?.[1];
  if (extended !== undefined) return decode(extended);
  const plain =
    /;\s*filename="((?:[^"\\]|\\.)*)"/i.exec(header) ?? /;\s*filename=([^;\s]+)/i.exec(header);
  return plain?.[1];
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function clean(text: string): string {
  const last = text.split(/[/\\]/).at(-1) ?? '';
  const plain = last
    .replaceAll(/[^A-Za-z0-9._-]+/g, '_')
    .replace(/^[._-]+/, '')
    .replace(/\.+$/, '');
  if (plain.length <= MAX_CHARS) return plain;
  const extension = extname(plain).slice(0, MAX_EXTENSION_CHARS);
  return plain.slice(0, MAX_CHARS - extension.length) + extension;
}
