// Reads the files of a model into the page cache while its program starts, so that the program need not wait for the disk. It reads
// one piece at a time, so that other reads come first, and ends when the model is ready.
import { type FileHandle, glob, open, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { ProcessLog } from './messages.ts';

const PIECE_BYTES = 4_194_304;
/** In one start. */
const MAX_FILES = 10_000;
/** The cache may use this part of the memory that is free. */
const SHARE = 0.5;

export interface WeightsOptions {
  /** Files, folders with all that is in them, and globs. */
  weights: readonly string[];
  cwd: string | undefined;
  log: Pick<ProcessLog, 'info' | 'warn'>;
  /** Ends the reading. */
  signal: AbortSignal;
}

/** Never fails: what cannot be read is left to the program. */
export async function readWeights({ cwd, log, signal, weights }: WeightsOptions): Promise<void> {
  const startedAt = performance.now();
  const buffer = Buffer.allocUnsafe(PIECE_BYTES);
  let files = 0;
  let bytes = 0;
  let left = process.availableMemory() * SHARE;
  for (const each of weights) {
    try {
      for await (const path of listFiles(resolve(cwd ?? '.', each))) {
        if (signal.aborted || left <= 0 || files >= MAX_FILES) break;
        const read = await readFile(path, { buffer, left, signal });
        files += 1;
        bytes += read;
        left -= read;
      }
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      log.warn({ path: each, reason }, 'weights could not be read ahead');
    }
  }
  const readMs = Math.round(performance.now() - startedAt);
  log.info({ files, bytes, readMs, isWhole: !signal.aborted && left > 0 }, 'weights read ahead');
}

async function* listFiles(pattern: string): AsyncGenerator<string> {
  const found = await stat(pattern).catch(() => undefined);
  if (found?.isFile()) {
    yield pattern;
    return;
  }
  let count = 0;
  const wanted = found?.isDirectory() ? join(pattern, '**') : pattern;
  for await (const path of glob(wanted)) {
    // A link to a file of a cache, as Hugging Face's, counts.
    if ((await stat(path).catch(() => undefined))?.isFile() !== true) continue;
    count += 1;
    yield path;
  }
  if (count === 0) throw new Error('no such file');
}

interface ReadLimits {
  buffer: Buffer;
  left: number;
  signal: AbortSignal;
}

/** @returns bytes */
async function readFile(path: string, { buffer, left, signal }: ReadLimits): Promise<number> {
  let file: FileHandle | undefined;
  let bytes = 0;
  try {
    file = await open(path);
    while (!signal.aborted && bytes < left) {
      const { bytesRead } = await file.read(buffer, 0, buffer.length);
      if (bytesRead === 0) break;
      bytes += bytesRead;
    }
    return bytes;
  } finally {
    await file?.close();
  }
}
