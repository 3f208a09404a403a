// `millrace down`: stops the platform of a data folder and its pods on this machine.
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findHolder, lockDataFolder } from '../../platform/files/data-folder.ts';
import { stopLeftPods } from '../../platform/machine.ts';
import { CommandError, defineCommand, EXIT } from '../command.ts';
import type { ParsedArguments } from '../option-parser.ts';
import { engineOptions, kubernetesOptions, readKubernetes } from '../options/engine-options.ts';
import { dataOption, explainPlatformError } from '../options/platform-option.ts';
import { integer } from '../options.ts';
import { print } from '../output.ts';
import { createTerminalLog } from '../terminal-log.ts';

const POLL_MS = 100;

const options = {
  data: dataOption('data folder of the platform'),
  engine: { ...engineOptions.engine, help: 'engine of the pods, as for `millrace serve`' },
  dockerHost: engineOptions.dockerHost,
  ...kubernetesOptions,
  graceMs: integer({
    min: 0,
    max: 3_600_000,
    default: 45_000,
    unit: 'ms',
    help: 'time between SIGTERM and SIGKILL of a pod; a worker needs 30,000 for its jobs',
  }),
  stopMs: integer({
    min: 1_000,
    max: 3_600_000,
    default: 60_000,
    unit: 'ms',
    help: 'time for the platform to end after SIGTERM; after that the command fails',
  }),
};

export const downCommand = defineCommand({
  name: 'millrace down',
  description: [
    'Sends SIGTERM to the platform that uses the data folder, if one does, and then to its pods and workers. ' +
      'Nothing is deleted. The next `millrace serve` continues queued jobs, starts workers as the load ' +
      'needs them, and restarts pods, except those that ended with code 0.',
    'Pods on other machines keep running. A process manager such as systemd may restart the platform; stop it ' +
      'there first.',
  ],
  options,
  examples: ['millrace down', 'millrace down --data /var/lib/millrace --engine docker'],
  exitCodes: {
    ok: 'neither the platform nor a pod runs',
    failed: 'the folder has no platform data, or the platform or a pod could not be stopped',
  },
  run,
});

async function run({ values }: ParsedArguments<typeof options>): Promise<number> {
  const { dockerHost, engine: kind, graceMs, stopMs } = values;
  const dataFolder = resolve(values.data);
  if (!existsSync(resolve(dataFolder, 'lock.db'))) {
    throw new CommandError(`--data: ${dataFolder} is not the data folder of a platform`);
  }
  const log = createTerminalLog('warn');
  try {
    const kubernetes = readKubernetes(values);
    const pid = await stopPlatform(dataFolder, stopMs);
    const first =
      pid === undefined ? 'no platform was running' : `stopped the platform (pid ${pid})`;
    void print(`${first}\n`);
    // No platform starts while its pods are being stopped.
    const lock = lockDataFolder(dataFolder);
    try {
      const pods = await stopLeftPods({ kind, dockerHost, kubernetes, dataFolder, log }, graceMs);
      void print(`stopped ${pods === 1 ? '1 pod' : `${pods} pods`}\n`);
    } finally {
      lock.release();
    }
  } catch (error) {
    throw explainPlatformError(error, options);
  }
  return EXIT.ok;
}

/** Resolves with the PID of the platform that it has stopped. @throws CommandError */
async function stopPlatform(dataFolder: string, stopMs: number): Promise<number | undefined> {
  const pid = findHolder(dataFolder);
  if (pid === undefined) return undefined;
  try {
    process.kill(pid, 'SIGTERM');
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CommandError(`the platform (pid ${pid}) cannot be stopped: ${reason}`);
  }
  const until = Date.now() + stopMs;
  while (findHolder(dataFolder) === pid) {
    if (Date.now() > until) {
      throw new CommandError(
        `the platform (pid ${pid}) still runs ${stopMs / 1_000} s after SIGTERM; see its log`,
      );
    }
    await sleep(POLL_MS);
  }
  return pid;
}
