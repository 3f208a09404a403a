// The `millrace` command: finds the command that is meant and turns what it throws into an exit
// code. Each command is imported only when it is asked for, so that a worker starts fast.

import { packageVersion } from '../base/package-info.ts';
import { type Command, CommandError, EXIT } from './command.ts';
import { renderBlock, renderHelp } from './help.ts';
import { asksForHelp, UsageError } from './options.ts';
import { print, printNote } from './output.ts';

interface Entry {
  summary: string;
  load: () => Promise<Command>;
}

const COMMANDS: Readonly<Record<string, Entry>> = {
  dev: {
    summary: 'run a local platform and workers; reload handlers when files change',
    load: async () => (await import('./dev/dev.ts')).devCommand,
  },
  run: {
    summary: 'run one job through a handler, without a platform',
    load: async () => (await import('./commands/run.ts')).runCommand,
  },
  serve: {
    summary: 'run the platform: job queues, endpoints that scale, pods, and their HTTP API',
    load: async () => (await import('./commands/serve.ts')).serveCommand,
  },
  worker: {
    summary: 'run a worker: take jobs from one endpoint and run them',
    load: async () => (await import('./worker/worker.ts')).workerCommand,
  },
  jobs: {
    summary: 'submit, list, show, cancel and retry jobs',
    load: async () => (await import('./resources/jobs.ts')).jobsCommand,
  },
  endpoints: {
    summary: 'create, list, update and delete endpoints; show scaling decisions',
    load: async () => (await import('./resources/endpoints.ts')).endpointsCommand,
  },
  templates: {
    summary: 'create, list, update and delete templates of pods and workers',
    load: async () => (await import('./resources/templates.ts')).templatesCommand,
  },
  pods: {
    summary: 'create, list, update, start, stop and terminate pods',
    load: async () => (await import('./resources/pods.ts')).podsCommand,
  },
  catalog: {
    summary: 'list the GPU types and CPU flavours of a platform',
    load: async () => (await import('./resources/catalog.ts')).catalogCommand,
  },
  keys: {
    summary: 'create, list, rotate and revoke API keys',
    load: async () => (await import('./resources/keys.ts')).keysCommand,
  },
  logs: {
    summary: "show what a job's handler logged",
    load: async () => (await import('./resources/logs.ts')).logsCommand,
  },
  store: {
    summary: "check, describe and back up a platform's database",
    load: async () => (await import('./commands/store.ts')).storeCommand,
  },
  init: {
    summary: 'scaffold a handler project',
    load: async () => (await import('./commands/init.ts')).initCommand,
  },
  'webhook-secret': {
    summary: "print the secret that verifies an endpoint's webhooks",
    load: async () => (await import('./commands/webhook-secret.ts')).webhookSecretCommand,
  },
  health: {
    summary: 'check the health of a worker on this machine',
    load: async () => (await import('./commands/health.ts')).healthCommand,
  },
  conformance: {
    summary: 'test a worker or a platform against a worker protocol',
    load: async () => (await import('./commands/conformance.ts')).conformanceCommand,
  },
  doctor: {
    summary: 'check this machine: Node, memory, disk, GPUs, and how workers are pinned',
    load: async () => (await import('./commands/doctor.ts')).doctorCommand,
  },
};

/** Runs one command line, without the program's name; resolves with the exit code. */
export async function main(args: readonly string[]): Promise<number> {
  const [word, ...rest] = args;
  if (word === '--version' || word === '-v' || word === 'version') {
    void print(`${packageVersion()}\n`);
    return EXIT.ok;
  }
  if (word === undefined || word === '--help' || word === '-h' || word === 'help') {
    return showHelp(rest[0], word === undefined);
  }
  const entry = Object.hasOwn(COMMANDS, word) ? COMMANDS[word] : undefined;
  if (!entry) {
    return complain(`${word}: unknown command`, '');
  }
  try {
    const command = await entry.load();
    if (asksForHelp(rest)) return printHelp(renderHelp(command));
    return await command.run(rest);
  } catch (error) {
    return explain(error, word);
  }
}

async function showHelp(word: string | undefined, isMistake: boolean): Promise<number> {
  const entry = word !== undefined && Object.hasOwn(COMMANDS, word) ? COMMANDS[word] : undefined;
  if (entry) return printHelp(renderHelp(await entry.load()));
  if (word !== undefined) return complain(`${word}: unknown command`, '');
  if (!isMistake) return printHelp(overview());
  printNote(overview());
  return EXIT.usage;
}

function overview(): string {
  const rows = Object.entries(COMMANDS).map(([name, { summary }]) => [name, summary] as const);
  return [
    'Usage: millrace <command> [options]\n',
    'Handlers become durable, streaming queue endpoints.\n',
    `${renderBlock('Commands', rows)}\n`,
    renderBlock('Options', [
      ['-h, --help', 'show help; after a command, the help of that command'],
      ['-v, --version', 'show the version'],
    ]),
    '',
    'Exit codes: 0 done, 1 failed, 2 wrong usage or configuration; see the help of each command.\n',
  ].join('\n');
}

function printHelp(text: string): number {
  void print(text);
  return EXIT.ok;
}

function explain(error: unknown, word: string): number {
  if (error instanceof UsageError) return complain(error.message, word);
  const known = error instanceof CommandError;
  const text = error instanceof Error ? (known ? error.message : error.stack) : String(error);
  printNote(`millrace ${word}: ${text}\n`);
  return known ? error.exitCode : EXIT.failed;
}

function complain(message: string, word: string): number {
  const name = ['millrace', word].filter(Boolean).join(' ');
  printNote(`${name}: ${message}\nSee \`${name} --help\`.\n`);
  return EXIT.usage;
}
