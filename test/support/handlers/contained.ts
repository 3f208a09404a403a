// Handler for tests of the image: describes its container from inside, and runs an action in it.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Job, NonRetryableError } from 'millrace';

export type Action = { do: 'look' } | { do: 'orphan' } | { do: 'wait'; file: string };

interface View {
  /** The name of the container's first process. */
  init: string;
  /** ID of the worker process. */
  pid: number;
  userId: number | undefined;
  /** Path of a folder that it created in its home. */
  made: string;
}

const POLL_MS = 5;

export default function act({ input }: Job<Action>): unknown {
  switch (input.do) {
    case 'look':
      return look();
    case 'orphan':
      return leaveOrphan();
    case 'wait':
      return waitFor(input.file);
    default:
      throw new NonRetryableError('unknown action');
  }
}

function look(): View {
  const { homedir } = userInfo();
  const made = mkdtempSync(join(homedir, 'made-'));
  return { init: readStatus('1').name, pid: process.pid, userId: process.getuid?.(), made };
}

/** Resolves when an ended process without a parent has been reaped. */
async function leaveOrphan(): Promise<string> {
  const script = 'sleep 600 >/dev/null 2>&1 & echo $!';
  const orphan = execFileSync('sh', ['-c', script], { encoding: 'utf8' }).trim();
  while (readStatus(orphan).parent !== '1') await delay(POLL_MS);
  process.kill(Number(orphan), 'SIGKILL');
  while (existsSync(`/proc/${orphan}`)) await delay(POLL_MS);
  return 'reaped';
}

async function waitFor(file: string): Promise<string> {
  while (!existsSync(file)) await delay(POLL_MS);
  return 'waited';
}

function readStatus(pid: string): { name: string; parent: string } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const read = (field: string) => new RegExp(`^${field}:\\s*(.*)$`, 'm').exec(status)?.[1] ?? '';
  return { name: read('Name'), parent: read('PPid') };
}
