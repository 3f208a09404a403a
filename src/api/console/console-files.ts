// Reads the files of the web console from the built package, once, with their compressed forms.
import { hash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { extname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

/** `npm run build` writes the console here, beside the other modules. */
export const CONSOLE_FOLDER = fileURLToPath(new URL('../../console', import.meta.url));

/** Most files of a console, and bytes of all of them together with their compressed forms. */
const MAX_FILES = 500;
const MAX_BYTES = 16_777_216;

/** Encodings of compressed files, by the extension that the build appends; the best first. */
const ENCODINGS = { br: '.br', gzip: '.gz' } as const;
export type ConsoleEncoding = keyof typeof ENCODINGS;

const MEDIA_TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.ico': 'image/x-icon',
  '.json': 'application/json; charset=utf-8',
  '.map': 'application/json; charset=utf-8',
  '.txt': 'text/plain; charset=utf-8',
  '.webmanifest': 'application/manifest+json',
  '.woff2': 'font/woff2',
};

export interface ConsoleFile {
  mediaType: string;
  /** Changes with the content. */
  etag: string;
  bytes: Uint8Array;
  /** The same content in other encodings, the best first. */
  encoded: ReadonlyMap<ConsoleEncoding, Uint8Array>;
  /** Its name has a hash of its content, so that it never changes. */
  isImmutable: boolean;
}

/** By path below `/console/`: `index.html`, `assets/main-B7xk2f.js`. */
export type ConsoleFiles = ReadonlyMap<string, ConsoleFile>;

/** Undefined if the folder has no `index.html`. @throws Error beyond the bounds */
export async function readConsoleFiles(folder: string): Promise<ConsoleFiles | undefined> {
  const all = new Map<string, Uint8Array>();
  let bytes = 0;
  for (const path of await listFiles(folder)) {
    const content = await readFile(path);
    bytes += content.length;
    all.set(relative(folder, path).split(sep).join('/'), content);
    if (all.size > MAX_FILES || bytes > MAX_BYTES) {
      throw new Error(`${folder} has more than ${MAX_FILES} files or ${MAX_BYTES} bytes`);
    }
  }
  if (!all.has('index.html')) return undefined;
  const isEncoded = (path: string) => Object.values(ENCODINGS).some((end) => path.endsWith(end));
  const plain = [...all].filter(([path]) => !isEncoded(path));
  return new Map(plain.map(([path, content]) => [path, describe(path, content, all)]));
}

function describe(
  path: string,
  bytes: Uint8Array,
  all: ReadonlyMap<string, Uint8Array>,
): ConsoleFile {
  const encoded = new Map<ConsoleEncoding, Uint8Array>();
  for (const encoding of ['br', 'gzip'] as const) {
    const content = all.get(path + ENCODINGS[encoding]);
    if (content) encoded.set(encoding, content);
  }
  return {
    mediaType: MEDIA_TYPES[extname(path)] ?? 'application/octet-stream',
    etag: `"${hash('sha256', bytes, 'base64url').slice(0, 22)}"`,
    bytes,
    encoded,
    isImmutable: path.startsWith('assets/'),
  };
}

async function listFiles(folder: string): Promise<string[]> {
  try {
    const entries = await readdir(folder, { recursive: true, withFileTypes: true });
    return entries.filter((each) => each.isFile()).map((each) => join(each.parentPath, each.name));
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return [];
    throw error;
  }
}
