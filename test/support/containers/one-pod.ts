// One pod on a process engine, in a folder of its own: what the engine's tests do with it.
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '../../../src/base/log.ts';
import { readProcess } from '../../../src/base/process/process-table.ts';
import { quoteWord } from '../../../src/base/text/shell-words.ts';
import type { Container, ContainerSpec } from '../../../src/engine/engine.ts';
import {
  ProcessEngine,
  type ProcessEngineOptions,
} from '../../../src/engine/process/process-engine.ts';
import { until } from '../until.ts';

const GPU = { kind: 'gpu' as const, index: 0, uuid: 'GPU-a', name: 'pretended', memoryBytes: 1 };

export class OnePod {
  readonly folder = mkdtempSync(join(tmpdir(), 'millrace-process-'));
  engine = this.open();

  /** One more engine on the folder. */
  open(options: Partial<ProcessEngineOptions> = {}): ProcessEngine {
    const args = ['-c', 'echo "$0" "$@" $OF_HANDLERS', 'worker'];
    const runHandler = { execPath: '/bin/sh', args, env: { OF_HANDLERS: 'known' } };
    const { folder } = this;
    return new ProcessEngine({ folder, log: silentLog, devices: [GPU], runHandler, ...options });
  }

  async clear(): Promise<void> {
    const last = this.open();
    for (const { id } of await last.list()) await last.remove(id, 'remove');
    rmSync(this.folder, { recursive: true });
  }

  /** The records of the pod's first generation; as it stands now, even if that was removed. */
  get home(): string {
    return join(this.folder, 'containers/pod_a/1');
  }

  /** Of the first generation, once there is one. */
  get disk(): string {
    const disks = join(this.folder, 'disks');
    const name = readdirSync(disks).find((each) => each.startsWith('pod_a.1.')) ?? '';
    return join(disks, name);
  }

  async start(part: Partial<ContainerSpec> = {}): Promise<void> {
    const spec = makeSpec(part);
    await this.engine.create(spec);
    await this.engine.start(spec.id);
  }

  untilExited(): Promise<Container> {
    return until(async () => {
      const seen = await this.engine.inspect('pod_a');
      return seen?.state === 'exited' && seen;
    });
  }

  /** All that it prints until it has ended. */
  async printed(part: Partial<ContainerSpec>): Promise<string> {
    await this.start(part);
    await this.untilExited();
    return this.readLog();
  }

  /** All that it has printed, once the text is in it. */
  untilPrinted(text: string): Promise<string> {
    return until(async () => {
      const log = await this.readLog();
      return log.includes(text) && log;
    });
  }

  async readLog(): Promise<string> {
    return Buffer.from(await this.engine.readLog('pod_a', 100_000)).toString();
  }

  /** What the last run's own record says. */
  readRun(): { file: string; pid: number; lines: string[]; exitFile: string } {
    const name = readdirSync(this.home).find((each) => each.startsWith('run-')) ?? '';
    const file = join(this.home, name);
    const lines = readFileSync(file, 'utf8').split('\n');
    const [, exitFile = ''] = /"exitFile":"([^"]+)"/.exec(lines[2] ?? '') ?? [];
    return { file, pid: Number.parseInt(lines[0] ?? '', 10), lines, exitFile };
  }
}

export function makeSpec(part: Partial<ContainerSpec> = {}): ContainerSpec {
  return {
    id: 'pod_a',
    generation: 1,
    labels: {},
    image: 'none',
    args: 'sleep 1000',
    handler: null,
    env: {},
    ports: [],
    diskGb: 1,
    registry: null,
    mounts: [],
    gpus: [],
    limits: null,
    network: null,
    ...part,
  };
}

/** A command line that runs the script by `sh`. */
export function shell(script: string): string {
  return `sh -c ${quoteWord(script)}`;
}

export function isThere(pid: number): boolean {
  return readProcess(pid)?.isDead === false;
}
