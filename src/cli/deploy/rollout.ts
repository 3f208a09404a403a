// The rollout of a version, which `deploy` and `rollback` share: its options, the wait until the endpoint runs it or keeps the
// earlier one, and the result that is printed.
import { setTimeout as sleep } from 'node:timers/promises';
import { quoteWord } from '../../base/text/shell-words.ts';
import { createClient } from '../../client.ts';
import type { EndpointRecord } from '../../wire/resources/endpoint.ts';
import type { Rollout } from '../../wire/resources/rollout.ts';
import { fillPath } from '../../wire/routes/route.ts';
import { JOB_ROUTES } from '../../wire/routes/routes.ts';
import { CommandError, EXIT, type ExitMeanings, NotLoadedError } from '../command.ts';
import { chooseExample } from '../example-input.ts';
import { flag, integer, text } from '../options.ts';
import { print, printNote } from '../output.ts';
import { type GivenTarget, spellTarget, type Target } from '../resources/client-options.ts';

export const nameOption = text({
  placeholder: 'NAME',
  help: "name of the endpoint, lower-case letters, digits and hyphens; default: the name in package.json, else the handler file's",
});

export const rolloutOptions = {
  timeout: integer({
    min: 5,
    max: 3_600,
    placeholder: 'S',
    help: 'time for the first worker to install the version and load the handler, s; default: 600',
  }),
  noFollow: flag({ help: 'do not wait for the rollout' }),
  json: flag({ help: 'print the result as one line of JSON' }),
};

export const DEPLOY_EXIT_CODES: ExitMeanings = {
  ok: 'the version is running; with --no-follow, its rollout has started',
  failed:
    'the files break a limit, the platform refused a request or did not respond, or it was superseded by another deployment',
  notLoaded: 'the handler does not load; the earlier version keeps running',
  interrupted: 'interrupted by a signal; the rollout continues',
};

const POLL_MS = 500;

export interface RolloutGoal {
  version: number;
  /** Of the rollout that is followed. */
  startedAt: string;
}

export type RolloutEnd =
  | { kind: 'done' }
  | { kind: 'failed'; reason: string }
  /** Another deployment began before the end. */
  | { kind: 'replaced'; version: number }
  | { kind: 'interrupted' };

/** Undefined while the rollout continues. */
export function findEnd(
  { rollout }: Pick<EndpointRecord, 'rollout'>,
  { startedAt, version }: RolloutGoal,
): RolloutEnd | undefined {
  if (!rollout) return { kind: 'failed', reason: 'the platform knows no rollout of the endpoint' };
  if (rollout.version !== version || rollout.startedAt !== startedAt) {
    return { kind: 'replaced', version: rollout.version };
  }
  if (rollout.state === 'DONE') return { kind: 'done' };
  if (rollout.state !== 'FAILED') return undefined;
  return { kind: 'failed', reason: rollout.reason ?? 'the platform gives no reason' };
}

export function isUnderWay(rollout: Rollout | null): boolean {
  return rollout?.state === 'CHECKING' || rollout?.state === 'ROLLING';
}

export function describeProgress(rollout: Rollout): string {
  const { reason, state, version, workersReady, workersTotal } = rollout;
  const waiting = reason === null ? '' : ` (${reason})`;
  if (state === 'CHECKING') return `version ${version}: a worker loads the handler${waiting}`;
  const workers = workersTotal === 1 ? '1 worker' : `${workersTotal} workers`;
  return `version ${version}: ${workersReady} of ${workers} ready${waiting}`;
}

interface FollowedRollout {
  goal: RolloutGoal;
  /** Reads the endpoint; an error ends the following. */
  read: () => Promise<EndpointRecord>;
  show: (text: string) => void;
  /** Resolves when the user stops following. */
  interrupted: Promise<unknown>;
}

export async function followRollout({
  goal,
  interrupted,
  read,
  show,
}: FollowedRollout): Promise<RolloutEnd> {
  const stop = interrupted.then(() => 'interrupted' as const);
  for (;;) {
    const endpoint = await Promise.race([read(), stop]);
    if (endpoint === 'interrupted') return { kind: 'interrupted' };
    const end = findEnd(endpoint, goal);
    if (end) return end;
    if (endpoint.rollout) show(describeProgress(endpoint.rollout));
    if ((await Promise.race([sleep(POLL_MS), stop])) === 'interrupted') {
      return { kind: 'interrupted' };
    }
  }
}

interface DeployResult {
  endpoint: EndpointRecord;
  /** Name or ID by which the user calls it. */
  name: string;
  version: number;
  /** `unchanged`: the version ran before. `started`: its rollout continues unwatched. */
  end: RolloutEnd | { kind: 'unchanged' | 'started' };
  target: Target;
  json: boolean;
  /** Input of the printed commands. Without it, none is printed. */
  example?: Example;
}

interface Example {
  input: object;
  /** Options that chose the platform and the key. */
  given: GivenTarget;
}

/** Finds an input that the handler accepts. Never rejects. */
export async function findInput(
  handler: string,
  { key, name, url }: Target & { name: string },
): Promise<object> {
  try {
    const { schema } = await createClient({ endpoint: name, key, url, repeats: 0 }).inputSchema();
    return chooseExample(handler, schema);
  } catch {
    // The deployment does not depend on it, and the key may lack the scope.
    return chooseExample(handler, null);
  }
}

/** Returns the exit code. @throws CommandError, NotLoadedError if the version does not run */
export function finish(result: DeployResult): number {
  const { end, json, name, version } = result;
  if (json) void print(`${JSON.stringify(summarize(result))}\n`);
  switch (end.kind) {
    case 'failed':
      throw new NotLoadedError(explainFailure(result, end.reason));
    case 'replaced':
      throw new CommandError(`superseded by another deployment: version ${end.version} of ${name}`);
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

/** Reason that a worker printed before it exited, without the prefixes that all workers print. */
function showReason(reason: string): string {
  const [, code, last] =
    /^it exited with code (\d+): (?:millrace worker: )?(?:no worker process could be started: )?(.+)$/s.exec(
      reason,
    ) ?? [];
  return last === undefined ? reason : `${last} (worker exit code ${code})`;
}

function describe(result: DeployResult): string {
  const { end, example, name, version } = result;
  if (end.kind === 'started') {
    return `The rollout of version ${version} of ${name} has started.\n`;
  }
  const state = end.kind === 'unchanged' ? 'is already running' : 'is running';
  const first = `Version ${version} of ${name} ${state} at ${locate(result)}\n`;
  // Without the handler, an input for its schema is unknown, and a command that fails helps nobody.
  return example ? `${first}\n  ${listCalls(result, example).join('\n  ')}\n` : first;
}

function summarize(result: DeployResult): object {
  const { end, endpoint, name, version } = result;
  return {
    endpoint: endpoint.id,
    name,
    version,
    result: end.kind,
    url: locate(result),
    ...(end.kind === 'failed' && { reason: end.reason, running: endpoint.version }),
    ...(end.kind === 'replaced' && { replacedBy: end.version }),
  };
}

function locate({ name, target }: DeployResult): string {
  return `${target.url.replace(/\/+$/, '')}/v2/${encodeURIComponent(name)}`;
}

/** Commands that call the endpoint. */
function listCalls({ name, target }: DeployResult, { given, input }: Example): string[] {
  const { bearer, flags } = spellTarget(given, target);
  const url = target.url.replace(/\/+$/, '') + fillPath(JOB_ROUTES.runJobSync, { endpoint: name });
  const curl = [
    `curl -s ${url}`,
    ...(bearer === undefined ? [] : [`-H "authorization: Bearer ${bearer}"`]),
    "-H 'content-type: application/json'",
    `-d ${quoteWord(JSON.stringify({ input }))}`,
  ];
  const submit = [
    `npx millrace jobs submit --endpoint ${name}`,
    ...flags,
    `--input ${quoteWord(JSON.stringify(input))} --wait`,
  ];
  return [curl.join(' '), submit.join(' ')];
}
