// The record of one run: who leads it and what it was given, in a file that the platform writes when the
// run begins; and in another file the code that it ended with, which the run's own script writes.
import { z } from 'zod';
import { type ProcessIdentity, parseStat } from '../../base/process-table.ts';
import type { GivenPort } from './port-pool.ts';

/** Groups of the run, as folders; empty where none can be made. */
export const runGroups = z.object({
  /** With every process of the run in it. */
  tracking: z.string().nullable(),
  memory: z.string().nullable(),
  cpu: z.string().nullable(),
});
export type RunGroups = z.infer<typeof runGroups>;

const runNote = z.object({
  startedAt: z.int(),
  ports: z.array(
    z.object({
      private: z.int(),
      public: z.int(),
      type: z.enum(['http', 'tcp', 'udp']),
      ip: z.string(),
    }),
  ),
  groups: runGroups,
  exitFile: z
    .string()
    .regex(/^exit-[0-9a-f]+$/)
    .nullable()
    .default(null),
});

export interface RunNote {
  /** Unix ms. */
  startedAt: number;
  ports: readonly GivenPort[];
  groups: RunGroups;
  /** Beside the record; null: the exit code follows in the record, where earlier versions wrote it. */
  exitFile: string | null;
}

export interface RunRecord extends RunNote {
  /** The script's shell. */
  leader: ProcessIdentity;
}

export interface RunExit {
  /** Null: the run has not said so, because it runs, or because it was killed. */
  exitCode: number | null;
  outOfMemory: boolean;
}

/** A line of its own, after the exit code. */
export const OUT_OF_MEMORY = 'out of memory';

/** `stat`: of the leader, as /proc has it. */
export function writeRunRecord(stat: string, bootId: string, note: RunNote): string {
  return [stat.trim(), bootId, JSON.stringify(note), ''].join('\n');
}

/** Undefined for what is no record, as one that a pod has damaged. */
export function parseRunRecord(text: string): RunRecord | undefined {
  const [stat = '', bootId = '', note = '', ...rest] = text.split('\n');
  const leader = parseStat(stat);
  // The text ends with a line's end, so that a line is whole when another one follows.
  if (!leader || rest.length === 0) return undefined;
  const parsed = runNote.safeParse(parseJson(note));
  if (!parsed.success) return undefined;
  return { ...parsed.data, leader: { pid: leader.pid, startTicks: leader.startTicks, bootId } };
}

/** Of an exit file. The first who says how the run ended is right. */
export function parseRunExit(text: string): RunExit {
  const lines = text.split('\n').slice(0, -1);
  const code = lines.find((line) => /^\d{1,3}$/.test(line));
  return {
    exitCode: code === undefined ? null : Number(code),
    outOfMemory: lines.includes(OUT_OF_MEMORY),
  };
}

/** What follows the record in the file of a run that an earlier version has started. */
export function cutRecord(text: string): string {
  return text.split('\n').slice(3).join('\n');
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
