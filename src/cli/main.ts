// The `millrace` program: finds the command, runs it, and turns errors into exit codes. Each
// command is imported only when it runs, so that a worker starts fast.
import { join } from 'node:path';
import { skipUnaskedContinue } from '../base/net/undici.ts';
import { packageRoot, packageVersion } from '../base/package-info.ts';
import {
  type Command,
  CommandError,
  type CommandGroup,
  chooseVerb,
  EXIT,
  noVerb,
  renderBlock,
  renderGroupHelp,
  renderHelp,
} from './command.ts';
import { asksForHelp } from './option-parser.ts';
import { InvalidKeyError, UnknownWordError, UsageError } from './options.ts';
import { print, printNote, watchOutput } from './output.ts';

interface CommandEntry {
  summary: string;
  load: () => Promise<Command | CommandGroup>;
}

/** Share of a word's letters that may differ from the suggested word; two swapped letters always may. */
const MAX_TYPOS = 0.4;
const SWAPPED = 2;

export const COMMANDS: Readonly<Record<string, CommandEntry>> = {
  dev: {
    summary: 'runs a local platform and workers; reloads handlers when files change',
    load: async () => (await import('./dev/dev.ts')).devCommand,
  },
  run: {
    summary: 'runs one job through a handler, without a platform',
    load: async () => (await import('./commands/run.ts')).runCommand,
  },
  deploy: {
    summary: 'uploads a handler with its files as a new version, and runs it',
    load: async () => (await import('./deploy/deploy.ts')).deployCommand,
  },
  rollback: {
    summary: 'redeploys an earlier version of a handler',
    load: async () => (await import('./deploy/deploy.ts')).rollbackCommand,
  },
  diff: {
    summary: 'compares a handler and its files with the version that runs',
    load: async () => (await import('./deploy/diff.ts')).diffCommand,
  },
  serve: {
    summary: 'runs the platform: queues, endpoints, pods and their HTTP API',
    load: async () => (await import('./commands/serve.ts')).serveCommand,
  },
  down: {
    summary: 'stops the platform of a data folder and its pods on this machine',
    load: async () => (await import('./commands/down.ts')).downCommand,
  },
  backup: {
    summary: 'copies the data of a platform to a new folder while it runs',
    load: async () => (await import('./commands/backup.ts')).backupCommand,
  },
  restore: {
    summary: 'puts a backup into the data folder of a stopped platform',
    load: async () => (await import('./commands/backup.ts')).restoreCommand,
  },
  worker: {
    summary: 'runs a worker: takes jobs from one endpoint and runs them',
    load: async () => (await import('./worker/worker.ts')).workerCommand,
  },
  jobs: {
    summary: 'submits, lists, shows, cancels and retries jobs; prints their logs',
    load: async () => (await import('./jobs/jobs.ts')).jobsCommands,
  },
  flows: {
    summary: 'submits, lists, shows, cancels and retries graphs of jobs',
    load: async () => (await import('./jobs/flows.ts')).flowsCommands,
  },
  batches: {
    summary: 'runs the lines of a file as jobs; lists, shows and cancels batches',
    load: async () => (await import('./jobs/batches.ts')).batchesCommands,
  },
  failed: {
    summary: 'lists, shows, exports, resubmits and deletes failed jobs',
    load: async () => (await import('./jobs/failed.ts')).failedCommands,
  },
  endpoints: {
    summary: 'creates, lists, shows, updates and deletes endpoints; explains their scaling',
    load: async () => (await import('./endpoints/endpoints.ts')).endpointsCommands,
  },
  pause: {
    summary: 'holds back the jobs of an endpoint or one of its groups',
    load: async () => (await import('./jobs/pause.ts')).pauseCommand,
  },
  resume: {
    summary: 'ends a pause of an endpoint or one of its groups',
    load: async () => (await import('./jobs/pause.ts')).resumeCommand,
  },
  templates: {
    summary: 'creates, lists, updates and deletes templates of pods and workers',
    load: async () => (await import('./resources/pod-parts.ts')).templatesCommands,
  },
  pods: {
    summary: 'creates, lists, updates, starts, stops and terminates pods',
    load: async () => (await import('./resources/pods.ts')).podsCommands,
  },
  'network-volumes': {
    summary: 'creates, lists, grows and deletes network volumes',
    load: async () => (await import('./resources/pod-parts.ts')).networkVolumesCommands,
  },
  registries: {
    summary: 'creates, lists, changes and deletes logins of image registries',
    load: async () => (await import('./resources/pod-parts.ts')).registriesCommands,
  },
  schedules: {
    summary: 'creates, lists, changes, pauses and triggers schedules of jobs',
    load: async () => (await import('./resources/schedules.ts')).schedulesCommands,
  },
  budgets: {
    summary: 'limits what pods, endpoints and network volumes may cost',
    load: async () => (await import('./resources/usage.ts')).budgetsCommands,
  },
  'shared-limits': {
    summary: 'limits the jobs of several endpoints together',
    load: async () => (await import('./resources/shared-limits.ts')).sharedLimitsCommands,
  },
  billing: {
    summary: 'prints what pods, endpoints and network volumes cost',
    load: async () => (await import('./resources/usage.ts')).billingCommand,
  },
  catalog: {
    summary: 'lists the GPU types, CPU flavors and data centers of a platform',
    load: async () => (await import('./resources/catalog.ts')).catalogCommands,
  },
  keys: {
    summary: 'creates, lists, rotates and revokes API keys',
    load: async () => (await import('./resources/keys.ts')).keysCommands,
  },
  nodes: {
    summary: 'lists the nodes of the platform; writes the secrets that they share',
    load: async () => (await import('./resources/nodes.ts')).nodesCommands,
  },
  limits: {
    summary: 'prints the rate limits and quotas of your user, and their use',
    load: async () => (await import('./resources/usage.ts')).limitsCommand,
  },
  login: {
    summary: 'stores the URL and the key of a platform as a profile',
    load: async () => (await import('./commands/profiles.ts')).loginCommand,
  },
  logout: {
    summary: 'removes a profile from this machine',
    load: async () => (await import('./commands/profiles.ts')).logoutCommand,
  },
  profiles: {
    summary: 'lists profiles, chooses the current one',
    load: async () => (await import('./commands/profiles.ts')).profilesCommands,
  },
  store: {
    summary: "checks, describes, backs up and copies a platform's database",
    load: async () => (await import('./commands/store.ts')).storeCommands,
  },
  init: {
    summary: 'creates a handler project in a folder',
    load: async () => (await import('./commands/init.ts')).initCommand,
  },
  health: {
    summary: 'checks the health of a worker on this machine',
    load: async () => (await import('./commands/health.ts')).healthCommand,
  },
  conformance: {
    summary: 'tests another implementation of a worker or a platform',
    load: async () => (await import('./commands/conformance.ts')).conformanceCommands,
  },
  doctor: {
    summary: 'checks this machine: Node, memory, disk, GPUs, and the GPUs of each worker',
    load: async () => (await import('./commands/doctor.ts')).doctorCommand,
  },
  mcp: {
    summary: 'lets a coding agent operate a platform (Model Context Protocol)',
    load: async () => (await import('./commands/mcp.ts')).mcpCommand,
  },
  completion: {
    summary: 'prints a script that completes command lines in bash, zsh or fish',
    load: async () => (await import('./commands/completion.ts')).createCompletionCommand(COMMANDS),
  },
};

/** Runs one command line, without the program's name; resolves with the exit code. */
export async function main(args: readonly string[]): Promise<number> {
  watchOutput();
  const [word, ...rest] = args;
  switch (word) {
    case '--version':
    case '-v':
    case 'version':
      return printHelp(`${packageVersion()}\n`);
    case undefined:
      printNote(overview());
      return EXIT.usage;
    case '--help':
    case '-h':
    case 'help':
      return rest[0] === undefined ? printHelp(overview()) : runNamed(rest[0], [...rest, '--help']);
    default:
      return runNamed(word, args);
  }
}

async function runNamed(word: string, [, ...args]: readonly string[]): Promise<number> {
  skipUnaskedContinue();
  // The recognised words of the command line, for messages.
  let name = 'millrace';
  try {
    const entry = Object.hasOwn(COMMANDS, word) ? COMMANDS[word] : undefined;
    if (!entry && word.startsWith('-')) {
      throw new UsageError(`${word}: unknown option; options follow the command`);
    }
    if (!entry) throw new UnknownWordError('command', word, Object.keys(COMMANDS));
    const loaded = await entry.load();
    name = loaded.name;
    const isHelp = asksForHelp(args);
    if (!('verbs' in loaded)) {
      return isHelp ? printHelp(renderHelp(loaded)) : await loaded.run(args);
    }
    const chosen = chooseVerb(loaded, args);
    if (!chosen.command) {
      if (isHelp) return printHelp(renderGroupHelp(loaded));
      throw noVerb(loaded);
    }
    name = chosen.command.name;
    if (isHelp) return printHelp(renderHelp(chosen.command));
    return await chosen.command.run(chosen.args);
  } catch (error) {
    return report(error, name);
  }
}

function overview(): string {
  const rows = Object.entries(COMMANDS).map(([name, { summary }]) => [name, summary] as const);
  return [
    'Usage: millrace <command> [options]\n',
    'Runs handlers as durable, streaming queue endpoints.\n',
    `${renderBlock('Commands', rows)}\n`,
    renderBlock('Options', [
      ['-h, --help', 'show help; after a command, the help of that command'],
      ['-v, --version', 'show the version'],
    ]),
    '',
    'Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 6 if an API key has',
    'characters that no key has, 141 if the reader of the output has gone (`| head -1`); see',
    'the help of each command.\n',
    `Documentation: ${join(packageRoot, 'docs', 'README.md')}\n`,
  ].join('\n');
}

function printHelp(text: string): number {
  void print(text);
  return EXIT.ok;
}

async function report(error: unknown, name: string): Promise<number> {
  if (error instanceof UsageError) {
    const hint = error instanceof UnknownWordError ? await suggest(error) : '';
    printNote(`${name}: ${error.message}${hint}\nSee \`${name} --help\`.\n`);
    return error instanceof InvalidKeyError ? EXIT.refused : EXIT.usage;
  }
  const known = error instanceof CommandError;
  const text = error instanceof Error ? (known ? error.message : error.stack) : String(error);
  printNote(`${name}: ${text}\n`);
  return known ? error.exitCode : EXIT.failed;
}

async function suggest({ known, word }: UnknownWordError): Promise<string> {
  const { closestMatch } = await import('leven');
  const { length } = word.replace(/^-+/, '');
  const maxDistance = length > SWAPPED ? Math.max(SWAPPED, Math.floor(length * MAX_TYPOS)) : 1;
  const closest = closestMatch(word, known, { maxDistance });
  return closest === undefined ? '' : `; did you mean ${closest}?`;
}
