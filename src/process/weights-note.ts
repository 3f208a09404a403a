// Remembers which weights the models of a worker have named, so that the next worker of the endpoint can read them before its
// handler is loaded. A worker's supervisor names the file in a variable; without it, nothing is remembered.
import { mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { createRandomId } from '../base/random-id.ts';
import type { Environment } from './options.ts';

/** JSON of a `WeightsMemory`. */
export const WEIGHTS_VARIABLE = 'MILLRACE_WEIGHTS';

const MAX_PATHS = 100;
const MAX_BYTES = 1_048_576;

export interface WeightsMemory {
  path: string;
  /** Start of the supervisor, Unix ms: what an earlier one's models have named is replaced. */
  startedAt: number;
  /** The supervisor reads what the file had at its start. */
  isReading: boolean;
}

interface WeightsNote {
  startedAt: number;
  /** Absolute paths and globs. */
  paths: string[];
  /** Those of the worker before. */
  before: string[];
}

/** What the models of the last worker have named; none if the file cannot be read. */
export function recallWeights(path: string): string[] {
  return readNote(path)?.paths ?? [];
}

/**
 * Remembers the weights of a model that starts. Never fails.
 * @returns those that nobody reads yet
 */
export function rememberWeights(
  weights: readonly string[],
  { cwd, inherited }: { cwd: string | undefined; inherited: Environment },
): string[] {
  const paths = weights.map((each) => resolve(cwd ?? '.', each));
  const memory = readMemory(inherited);
  if (!memory) return paths;
  const { isReading, path, startedAt } = memory;
  const known = readNote(path);
  const isOwn = known?.startedAt === startedAt;
  const before = (isOwn ? known.before : known?.paths) ?? [];
  const all = [...new Set([...(isOwn ? known.paths : []), ...paths])].slice(0, MAX_PATHS);
  // A worker that has started later has its own to say.
  if ((known?.startedAt ?? 0) <= startedAt) writeNote(path, { startedAt, paths: all, before });
  return isReading ? paths.filter((each) => !before.includes(each)) : paths;
}

function readMemory({ [WEIGHTS_VARIABLE]: text }: Environment): WeightsMemory | undefined {
  try {
    const value: unknown = JSON.parse(text ?? '');
    if (typeof value !== 'object' || value === null) return undefined;
    const { isReading, path, startedAt } = value as Record<string, unknown>;
    if (typeof path !== 'string' || typeof startedAt !== 'number') return undefined;
    return { path, startedAt, isReading: isReading === true };
  } catch {
    return undefined;
  }
}

function readNote(path: string): WeightsNote | undefined {
  try {
    if (statSync(path).size > MAX_BYTES) return undefined;
    const value: unknown = JSON.parse(readFileSync(path, 'utf8'));
    if (typeof value !== 'object' || value === null) return undefined;
    const { before, paths, startedAt } = value as Record<string, unknown>;
    if (typeof startedAt !== 'number') return undefined;
    return { startedAt, paths: listTexts(paths), before: listTexts(before) };
  } catch {
    // There is none yet.
    return undefined;
  }
}

function listTexts(value: unknown): string[] {
  if (!Array.isArray(value)) return [];
  return value.filter((each) => typeof each === 'string').slice(0, MAX_PATHS);
}

function writeNote(path: string, note: WeightsNote): void {
  const fresh = `${path}.${createRandomId()}`;
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    writeFileSync(fresh, JSON.stringify(note), { mode: 0o600 });
    renameSync(fresh, path);
  } catch {
    // The next worker reads its weights when its models name them.
  }
}
