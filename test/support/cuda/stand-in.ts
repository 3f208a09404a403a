// The stand-in for the NVIDIA driver: compiles libcuda.c, and makes devices whose memory is a file.
import { spawnSync } from 'node:child_process';
import {
  appendFileSync,
  copyFileSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { readProcess } from '../../../src/base/process/process-table.ts';

const SOURCE = resolve(import.meta.dirname, 'libcuda.c');

export const STAND_IN_UUID = 'GPU-5tand-1n';

/** Whether the tests are left out: there is no compiler. In CI that fails the run. */
export function leaveOutWithoutCompiler(file: string): boolean {
  if (process.env['CI'] || spawnSync('cc', ['--version']).status === 0) return false;
  console.warn(`${file} is left out: there is no C compiler (cc)`);
  return true;
}

/** A folder with the two libraries; remove it with `removeDriver`. */
export function compileDriver(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-cuda-'));
  const library = join(folder, 'libcuda.so.1');
  const { status, stderr } = spawnSync('cc', ['-O1', '-shared', '-fPIC', '-o', library, SOURCE]);
  if (status !== 0) throw new Error(`cc: ${stderr.toString()}`);
  copyFileSync(library, join(folder, 'libnvidia-ml.so.1'));
  return folder;
}

export function removeDriver(folder: string): void {
  rmSync(folder, { recursive: true });
}

interface DeviceSizes {
  totalMb?: number;
  othersMb?: number;
  /** MB per second; 0: at once. */
  speeds?: [down: number, up: number];
}

interface TenantOnDevice {
  pid: number;
  state: 'running' | 'locked' | 'checkpointed' | 'failed';
  mb: number;
}

const MB = 2 ** 20;
const STATES = ['running', 'locked', 'checkpointed', 'failed'] as const;

export class StandInDevice {
  static #made = 0;
  readonly path: string;
  readonly #folder: string;

  constructor(
    folder: string,
    { othersMb = 0, speeds = [0, 0], totalMb = 8_192 }: DeviceSizes = {},
  ) {
    this.#folder = folder;
    this.path = join(folder, `device-${++StandInDevice.#made}`);
    const [down, up] = speeds.map((speed) => speed * MB);
    writeFileSync(
      this.path,
      `total ${totalMb * MB}\nothers ${othersMb * MB}\nspeed ${down} ${up}\n`,
    );
  }

  /** For programs that use the device. */
  get environment(): Record<string, string> {
    const path = [this.#folder, process.env['LD_LIBRARY_PATH']].filter(Boolean).join(':');
    return {
      CUDA_STAND_IN: this.path,
      CUDA_VISIBLE_DEVICES: STAND_IN_UUID,
      LD_LIBRARY_PATH: path,
    };
  }

  /** A fault, used up once: `Restore 2`, `Checkpoint kill`, `Lock sleep-500`. */
  order(...faults: string[]): void {
    for (const fault of faults) appendFileSync(`${this.path}.orders`, `${fault}\n`);
  }

  /** Processes that run and use the device. */
  get tenants(): TenantOnDevice[] {
    return readFileSync(this.path, 'utf8')
      .split('\n')
      .filter((line) => line.startsWith('process '))
      .map((line) => line.split(' ').map(Number))
      .map(([, pid = 0, , state = 0, , bytes = 0]) => {
        return { pid, state: STATES[state] ?? ('failed' as const), mb: bytes / MB };
      })
      .filter(({ pid }) => readProcess(pid)?.isDead === false);
  }
}
