// The record of one run. The platform writes its leader and its resources to a file when the run
// begins. The run's script writes the exit code to another file.
import { z } from 'zod';
import { type ProcessIdentity, parseStat } from '../../base/process/process-table.ts';
import type { GivenPort } from './port-pool.ts';

/** Groups of the run, as folders; empty if none can be created. */
export const runGroups = z.object({
  /** Contains every process of the run. */
  tracking: z.string().nullable(),
  memory: z.string().nullable(),
  cpu: z.string().nullable(),
  pids: z.string().nullable(),
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
  gpus: z.array(z.string()),
  exitFile: z.string().regex(/^exit-[0-9a-f]+$/),
});

export interface RunNote {
  /** Unix ms. */
  startedAt: number;
  ports: readonly GivenPort[];
  groups: RunGroups;
  /** UUIDs of its GPUs. */
  gpus: readonly string[];
  /** Beside the record. */
  exitFile: string;
}

export interface RunRecord extends RunNote {
  /** The script's shell. */
  leader: ProcessIdentity;
}

export interface RunExit {
  /** Null: the run has not reported one, because it runs or was killed. */
  exitCode: number | null;
  outOfMemory: boolean;
  /** The file changed when the run ended. False: the run was found dead. */
  isEndSeen: boolean;
}

/** Lines in the file of the exit code. */
export const OUT_OF_MEMORY = 'out of memory';
export const END_UNSEEN = 'end unseen';

/** `stat`: of the leader, from /proc. */
export function writeRunRecord(stat: string, bootId: string, note: RunNote): string {
  return [stat.trim(), bootId, JSON.stringify(note), ''].join('\n');
}

/** Undefined for an invalid record, which a pod may have damaged. */
export function parseRunRecord(text: string): RunRecord | undefined {
  const [stat = '', bootId = '', note = '', ...rest] = text.split('\n');
  const leader = parseStat(stat);
  // A line is complete when its line break is there.
  if (!leader || rest.length === 0) return undefined;
  const parsed = runNote.safeParse(parseJson(note));
  if (!parsed.success) return undefined;
  return { ...parsed.data, leader: { pid: leader.pid, startTicks: leader.startTicks, bootId } };
}

/** Reads an exit file. The first entry counts. */
export function parseRunExit(text: string): RunExit {
  const lines = text.split('\n').slice(0, -1);
  const code = lines.find((line) => /^\d{1,3}$/.test(line));
  return {
    exitCode: code === undefined ? null : Number(code),
    outOfMemory: lines.includes(OUT_OF_MEMORY),
    isEndSeen: !lines.includes(END_UNSEEN),
  };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
