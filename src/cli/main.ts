// The `millrace` command: finds the command that is meant and turns what it throws into an exit
// code. Each command is imported only when it is asked for, so that a worker starts fast.
import { type Command, CommandError, EXIT } from './command.ts';
import { renderBlock, renderHelp } from './help.ts';
import { asksForHelp, UsageError } from './options.ts';
import { print, printNote } from './output.ts';
import { packageVersion } from './package-info.ts';

interface Entry {
  summary: string;
  load: () => Promise<Command>;
}

const COMMANDS: Readonly<Record<string, Entry>> = {
  dev: {
    summary: 'platform and workers in one go, reloading handlers as they change',
    load: async () => (await import('./dev/dev.ts')).devCommand,
  },
  run: {
    summary: 'run one job through a handler, without a platform',
    load: async () => (await import('./commands/run.ts')).runCommand,
  },
  serve: {
    summary: 'the platform: queues, endpoints that scale, pods; its HTTP API, the data on disk',
    load: async () => (await import('./commands/serve.ts')).serveCommand,
  },
  worker: {
    summary: 'a worker: takes jobs from one endpoint and runs them',
    load: async () => (await import('./worker/worker.ts')).workerCommand,
  },
  jobs: {
    summary: 'submit, list, show, cancel and retry jobs',
    load: async () => (await import('./resources/jobs.ts')).jobsCommand,
  },
  endpoints: {
    summary: 'make, list and change endpoints; why they have the workers that they have',
    load: async () => (await import('./resources/endpoints.ts')).endpointsCommand,
  },
  templates: {
    summary: 'make, list and change what pods and workers are made from',
    load: async () => (await import('./resources/templates.ts')).templatesCommand,
  },
  pods: {
    summary: 'make, list, start, stop and end pods',
    load: async () => (await import('./resources/pods.ts')).podsCommand,
  },
  catalog: {
    summary: 'the GPU types and CPU flavours that a platform has',
    load: async () => (await import('./resources/catalog.ts')).catalogCommand,
  },
  keys: {
    summary: 'make, list, rotate and revoke API keys',
    load: async () => (await import('./resources/keys.ts')).keysCommand,
  },
  logs: {
    summary: "what a job's handler logged",
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
    summary: "what checks the signature of an endpoint's webhooks",
    load: async () => (await import('./commands/webhook-secret.ts')).webhookSecretCommand,
  },
  health: {
    summary: 'asks a worker on this machine whether it is well',
    load: async () => (await import('./commands/health.ts')).healthCommand,
  },
  conformance: {
    summary: 'tests a worker or a platform of somebody else against a worker protocol',
    load: async () => (await import('./commands/conformance.ts')).conformanceCommand,
  },
  doctor: {
    summary: 'what this machine has, and how workers would be pinned to it',
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
    return complain(`${word}: there is no such command`, '');
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
  if (word !== undefined) return complain(`${word}: there is no such command`, '');
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
      ['-h, --help', 'show this text; after a command, its own'],
      ['-v, --version', 'show the version'],
    ]),
    '',
    'Exit codes: 0 done, 1 failed, 2 wrong usage or configuration; more in the help of a command.\n',
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
