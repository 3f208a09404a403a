// Tells what its container looks like from inside, and does there what a test of the image asks for.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Job, NonRetryableError } from 'millrace';

export type Deed = { do: 'look' } | { do: 'orphan' } | { do: 'wait'; file: string };

interface View {
  /** The name of the container's first process. */
  init: string;
  /** Of the worker process. */
  pid: number;
  userId: number | undefined;
  /** A folder in its home, which could be made. */
  made: string;
}

const POLL_MS = 5;

export default function act({ input }: Job<Deed>): unknown {
  switch (input.do) {
    case 'look':
      return look();
    case 'orphan':
      return leaveOrphan();
    case 'wait':
      return waitFor(input.file);
    default:
      throw new NonRetryableError('there is no such deed');
  }
}

function look(): View {
  const { homedir } = userInfo();
  const made = mkdtempSync(join(homedir, 'made-'));
  return { init: readStatus('1').name, pid: process.pid, userId: process.getuid?.(), made };
}

/** Resolves once a process that lost its parent, and then ended, is gone for good. */
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
