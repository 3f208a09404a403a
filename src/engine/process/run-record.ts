// The file of one run: who leads it, what it was given, and the code that it ended with. Three lines are
// written by the run's own script when it begins, a fourth when it has ended; a word may follow.
import { z } from 'zod';
import type { GivenPort } from './port-pool.ts';
import { type ProcessIdentity, parseStat } from './process-table.ts';

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
});

export interface RunNote {
  /** Unix ms. */
  startedAt: number;
  ports: readonly GivenPort[];
  groups: RunGroups;
}

export interface RunRecord extends RunNote {
  /** The script's shell. */
  leader: ProcessIdentity;
  /** Null: it has not said so, because it runs, or because it was killed. */
  exitCode: number | null;
  outOfMemory: boolean;
}

/** A line of its own, after the exit code. */
export const OUT_OF_MEMORY = 'out of memory';

/** Undefined while it is being written. */
export function parseRunRecord(text: string): RunRecord | undefined {
  const [stat = '', bootId = '', note = '', ...rest] = text.split('\n');
  const leader = parseStat(stat);
  // The text ends with a line's end, so that a line is whole when another one follows.
  if (!leader || rest.length === 0) return undefined;
  const exit = rest.length > 1 ? rest[0] : undefined;
  return {
    ...runNote.parse(JSON.parse(note)),
    leader: { pid: leader.pid, startTicks: leader.startTicks, bootId },
    exitCode: exit === undefined ? null : Number(exit),
    outOfMemory: rest.includes(OUT_OF_MEMORY),
  };
}
