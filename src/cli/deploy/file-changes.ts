// Compares the files of two versions, and formats the differences of small text files.
import { diff } from 'node:util';

/** Larger files are only named. */
export const MAX_TEXT_BYTES = 64 * 1024;
/** Both files together; the comparison needs memory for the square of it. */
const MAX_LINES = 2_000;
/** Lines of context around a difference. */
const CONTEXT = 3;

interface ComparedFile {
  path: string;
  bytes: number;
  sha256: string;
  isExecutable: boolean;
}

export interface FileChange {
  path: string;
  /** `mode`: only the executable bit differs. */
  kind: 'added' | 'removed' | 'changed' | 'mode';
  bytesBefore: number;
  bytesAfter: number;
}

/** Sorted by path. */
export function findChanges(
  before: readonly ComparedFile[],
  after: readonly ComparedFile[],
): FileChange[] {
  const old = new Map(before.map((file) => [file.path, file]));
  const now = new Map(after.map((file) => [file.path, file]));
  const paths = [...new Set([...old.keys(), ...now.keys()])].toSorted();
  return paths.flatMap((path) => {
    const [was, is] = [old.get(path), now.get(path)];
    const kind = nameChange(was, is);
    return kind ? [{ path, kind, bytesBefore: was?.bytes ?? 0, bytesAfter: is?.bytes ?? 0 }] : [];
  });
}

function nameChange(
  was: ComparedFile | undefined,
  is: ComparedFile | undefined,
): FileChange['kind'] | undefined {
  if (!was) return 'added';
  if (!is) return 'removed';
  if (was.sha256 !== is.sha256) return 'changed';
  return was.isExecutable === is.isExecutable ? undefined : 'mode';
}

/** Undefined if one of the files is no text, or both are too long. */
export function formatTextChange(
  path: string,
  before: Uint8Array,
  after: Uint8Array,
): string | undefined {
  const [old, now] = [readText(before), readText(after)];
  if (old === undefined || now === undefined) return undefined;
  const [oldLines, newLines] = [splitLines(old), splitLines(now)];
  if (oldLines.length + newLines.length > MAX_LINES) return undefined;
  const lines = diff(oldLines, newLines);
  const shown = lines.map(([operation], at) => {
    const near = lines.slice(Math.max(0, at - CONTEXT), at + CONTEXT + 1);
    return operation !== 0 || near.some(([other]) => other !== 0);
  });
  const body: string[] = [];
  for (const [at, [operation, line]] of lines.entries()) {
    if (!shown[at]) continue;
    if (at > 0 && !shown[at - 1]) body.push('@@');
    // util.diff marks what only the first argument has with -1 or 1, see SIGNS.
    body.push(`${SIGNS[operation + 1]}${line}`);
  }
  return [`--- ${path}`, `+++ ${path}`, ...body].join('\n');
}

/** The line break at the end of a file begins no line. */
function splitLines(text: string): string[] {
  return text.replace(/\n$/, '').split('\n');
}

/** Of -1, 0 and 1. */
const SIGNS = ['+', ' ', '-'] as const;

function readText(bytes: Uint8Array): string | undefined {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return text.includes('\0') ? undefined : text;
  } catch {
    return undefined;
  }
}
