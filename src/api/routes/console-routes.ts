// Serves the web console below /console/, and sends browsers from / to it. Reads its files from the built package,
// once.
import { hash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { extname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import Negotiator from 'negotiator';
import type { Log } from '../../base/log.ts';
import { ProblemError } from '../../wire/problem.ts';
import { CONSOLE_BASE, SYSTEM_ROUTES } from '../../wire/routes/routes.ts';
import { sendJson, sendShared } from '../http/byte-reply.ts';

/**
 * Nothing from other sites, no inline code, and no frames. Outputs of jobs are `data:` or `blob:`, so that HTML and
 * SVG of a handler never run.
 */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data: blob:",
  "media-src 'self' data: blob:",
  "connect-src 'self'",
  "frame-ancestors 'none'",
  "base-uri 'none'",
  "form-action 'self'",
].join('; ');

const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy': CONTENT_SECURITY_POLICY,
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
};

/** One year in seconds; file names contain a hash. */
const IMMUTABLE = 'public, max-age=31536000, immutable';

/** Browsers ask again each time, and get 304 while the file is the same. */
const REVALIDATED = 'no-cache';

export interface ConsoleOptions {
  /** Folder of the built console. Undefined: the console is off. */
  folder: string | undefined;
  log: Log;
  /** Of the package. */
  version: string;
}

/** The routes are open: the files are the same for everybody, and hold no data. */
export function addConsole(app: FastifyInstance, { folder, log, version }: ConsoleOptions): void {
  let reading: Promise<ConsoleFiles | undefined> | undefined;
  const readFiles = (from: string) => {
    reading ??= readConsoleFiles(from).catch((error: unknown) => {
      log.error({ err: error, folder: from }, 'reading the console failed');
      reading = undefined;
      return undefined;
    });
    return reading;
  };
  const config = { access: 'open' } as const;
  const options = { method: ['GET', 'HEAD'], config };
  app.route({
    ...options,
    url: '/',
    handler: async (request, reply) => {
      if (folder !== undefined && wantsHtml(request)) return redirect(reply);
      return sendJson(reply, {
        name: 'millrace',
        version,
        ...(folder !== undefined && { console: CONSOLE_BASE }),
        openapi: SYSTEM_ROUTES.getOpenApi.path,
        readiness: SYSTEM_ROUTES.getReadiness.path,
      });
    },
  });
  app.route({
    ...options,
    url: CONSOLE_BASE.slice(0, -1),
    handler: async (_request, reply) => redirect(reply),
  });
  app.route<{ Params: { '*': string } }>({
    ...options,
    url: `${CONSOLE_BASE}*`,
    handler: async (request, reply) => {
      if (folder === undefined) {
        throw new ProblemError('not_found', 'The console is off: start without --no-console.');
      }
      const files = await readFiles(folder);
      if (!files) {
        throw new ProblemError(
          'not_found',
          'The console has not been built: run `npm run build`, and start the platform with bin/millrace.js.',
        );
      }
      return sendFile(request, reply, findFile(files, request.params['*']));
    },
  });
}

/** Paths without an extension are pages of the console, which index.html shows. @throws ProblemError `not_found` */
function findFile(files: ConsoleFiles, path: string): ConsoleFile {
  const isPage = !/\.[^/]*$/.test(path);
  const file = files.get(isPage ? 'index.html' : path);
  if (file) return file;
  throw new ProblemError('not_found', 'The console has no file with this path.');
}

function sendFile(
  { headers }: FastifyRequest,
  reply: FastifyReply,
  { bytes, encoded, etag, isImmutable, mediaType }: ConsoleFile,
): FastifyReply {
  const accepted = new Negotiator({ headers }).encodings([...encoded.keys()]);
  const content = [...encoded].find(([name]) => accepted.includes(name));
  reply.headers({
    ...SECURITY_HEADERS,
    vary: 'accept-encoding',
    'cache-control': isImmutable ? IMMUTABLE : REVALIDATED,
    // Weak: the encodings share it.
    etag: `W/${etag}`,
  });
  if (isKnown(headers['if-none-match'], etag)) return reply.code(304).send();
  if (content) reply.header('content-encoding', content[0]);
  return sendShared(reply, { mediaType, pieces: [content?.[1] ?? bytes] });
}

function isKnown(known: string | undefined, etag: string): boolean {
  return known?.split(',').some((each) => each.trim().replace(/^W\//, '') === etag) ?? false;
}

function redirect(reply: FastifyReply): FastifyReply {
  return reply.headers({ 'cache-control': REVALIDATED }).redirect(CONSOLE_BASE);
}

/** A browser names HTML; programs accept anything. */
function wantsHtml({ headers }: FastifyRequest): boolean {
  return headers.accept?.toLowerCase().includes('text/html') ?? false;
}

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

interface ConsoleFile {
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
type ConsoleFiles = ReadonlyMap<string, ConsoleFile>;

/**
 * Reads the files from the built package, once, with their compressed forms. Undefined if the folder has no
 * `index.html`. @throws Error beyond the bounds
 */
async function readConsoleFiles(folder: string): Promise<ConsoleFiles | undefined> {
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
