// Prints the result of a deployment, with a command that calls the endpoint, and chooses the exit code.
import { readFileSync } from 'node:fs';
import type { EndpointRecord } from '../../wire/resources/endpoint.ts';
import { fillPath } from '../../wire/routes/route.ts';
import { JOB_ROUTES } from '../../wire/routes/routes.ts';
import { CommandError, EXIT, NotLoadedError } from '../command.ts';
import { readExampleInput } from '../dev/dev-banner.ts';
import { print, printNote } from '../output.ts';
import type { RolloutEnd } from './rollout.ts';

export interface DeployResult {
  endpoint: EndpointRecord;
  /** Name or ID by which the user calls it. */
  name: string;
  version: number;
  /** `unchanged`: the version ran before. `started`: its rollout continues unwatched. */
  end: RolloutEnd | { kind: 'unchanged' | 'started' };
  target: { url: string; key: string | undefined };
  json: boolean;
  /** Absolute path of the handler, for its example input. Without it, no command that calls the endpoint is printed. */
  handler?: string;
}

/** Returns the exit code. @throws CommandError, NotLoadedError if the version does not run */
export function finish(result: DeployResult): number {
  const { end, json, name, version } = result;
  if (json) void print(`${JSON.stringify(summarize(result))}\n`);
  switch (end.kind) {
    case 'failed':
      throw new NotLoadedError(explainFailure(result, end.reason));
    case 'replaced':
      throw new CommandError(
        `another deployment has replaced this one: version ${end.version} of ${name}`,
      );
    case 'interrupted':
      printNote(
        `The rollout of version ${version} continues; see \`millrace endpoints show ${name}\`.\n`,
      );
      return EXIT.interrupted;
    default:
      if (!json) void print(describe(result));
      return EXIT.ok;
  }
}

function explainFailure({ endpoint, version }: DeployResult, reason: string): string {
  const running =
    endpoint.version === null
      ? 'no earlier version exists'
      : `version ${endpoint.version} keeps running`;
  return `Version ${version} failed to start, and ${running}. ${showReason(reason)}`;
}

/** What a worker has printed at its end, without what each of them prints. */
function showReason(reason: string): string {
  const [, code, last] =
    /^it exited with code (\d+): (?:millrace worker: )?(?:no worker process could be started: )?(.+)$/s.exec(
      reason,
    ) ?? [];
  return last === undefined ? reason : `${last} (worker exit code ${code})`;
}

function describe(result: DeployResult): string {
  const { end, handler, name, version } = result;
  if (end.kind === 'started') {
    return `The rollout of version ${version} of ${name} has started.\n`;
  }
  const state = end.kind === 'unchanged' ? 'is already running' : 'is running';
  const first = `Version ${version} of ${name} ${state} at ${locate(result)}\n`;
  // Without the handler, an input for its schema is unknown, and a command that fails helps nobody.
  if (handler === undefined) return first;
  return `${first}\n  ${formatCurl(result, handler)}\n  ${formatSubmission(result, handler)}\n`;
}

function summarize(result: DeployResult): object {
  const { end, endpoint, name, version } = result;
  return {
    ...{ endpoint: endpoint.id, name, version, result: end.kind, url: locate(result) },
    ...(end.kind === 'failed' && { reason: end.reason, running: endpoint.version }),
    ...(end.kind === 'replaced' && { replacedBy: end.version }),
  };
}

function locate({ name, target }: DeployResult): string {
  return `${target.url.replace(/\/+$/, '')}/v2/${encodeURIComponent(name)}`;
}

/** The key stays in the environment, so that the command can be shown to others. */
function formatCurl({ name, target }: DeployResult, handler: string): string {
  const url = target.url.replace(/\/+$/, '') + fillPath(JOB_ROUTES.runJobSync, { endpoint: name });
  return [
    `curl -s ${url}`,
    ...(target.key === undefined ? [] : ['-H "authorization: Bearer $MILLRACE_KEY"']),
    "-H 'content-type: application/json'",
    `-d ${quoteJson({ input: readInput(handler) })}`,
  ].join(' ');
}

/** Uses the key of the profile too. */
function formatSubmission({ name }: DeployResult, handler: string): string {
  return `npx millrace jobs submit --endpoint ${name} --input ${quoteJson(readInput(handler))} --wait`;
}

/** For a POSIX shell. */
function quoteJson(value: object): string {
  return `'${JSON.stringify(value).replaceAll("'", String.raw`'\''`)}'`;
}

function readInput(handler: string): object {
  try {
    return readExampleInput(readFileSync(handler, 'utf8'));
  } catch {
    return {};
  }
}
