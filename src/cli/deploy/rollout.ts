// The rollout of a version, which `deploy` and `rollback` share: its options, the wait until the endpoint runs it or keeps the
// earlier one, and the result that is printed.
import { setTimeout as sleep } from 'node:timers/promises';
import { quoteWord } from '../../base/text/shell-words.ts';
import type { Platform } from '../../client/platform-client.ts';
import { ApiError, createClient, UnreachableError } from '../../client.ts';
import type { EndpointRecord, Rollout } from '../../wire/resources/endpoint.ts';
import type { VersionRecord } from '../../wire/resources/version.ts';
import { fillPath } from '../../wire/routes/route.ts';
import { JOB_ROUTES } from '../../wire/routes/routes.ts';
import { CommandError, EXIT, type ExitMeanings, NotLoadedError } from '../command.ts';
import { chooseExample } from '../example-input.ts';
import { flag, integer, text } from '../options.ts';
import { formatSize, print, printNote, type StatusLine } from '../output.ts';
import {
  callPlatform,
  type GivenTarget,
  spellTarget,
  type Target,
} from '../resources/client-options.ts';
import { listenForStop } from '../stop-signals.ts';
import type { PackedProject } from './package-files.ts';

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
    'the files break a limit, the platform refused a request or did not respond, or another deployment superseded this one',
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

/** How long the platform may be unreachable while a rollout is followed, ms. */
const OUTAGE_MS = 60_000;

export interface Upload {
  packed: PackedProject;
  entry: string;
  message: string | undefined;
}

/** `running`: nothing to do. `followed`: its rollout is under way. `kept`: the platform has it already. */
type Choice = { kind: 'running' | 'followed' | 'kept'; version: number };

/** Finds a version with the same files and the same handler. */
export async function findSame(
  platform: Platform,
  endpoint: EndpointRecord,
  { entry, packed }: Pick<Upload, 'entry' | 'packed'>,
): Promise<Choice | undefined> {
  const same: VersionRecord[] = [];
  for await (const version of platform.endpoints.versions(endpoint.id).list()) {
    if (version.sha256 === packed.sha256 && version.entry === entry) same.push(version);
  }
  return chooseSame(
    endpoint,
    same.map(({ version }) => version),
  );
}

/** `same`: the versions with the same content. */
export function chooseSame(
  { rollout, version }: Pick<EndpointRecord, 'rollout' | 'version'>,
  same: readonly number[],
): Choice | undefined {
  if (rollout && isUnderWay(rollout)) {
    if (same.includes(rollout.version)) return { kind: 'followed', version: rollout.version };
  } else if (version !== null && same.includes(version)) return { kind: 'running', version };
  const [newest] = same.toSorted((one, other) => other - one);
  return newest === undefined ? undefined : { kind: 'kept', version: newest };
}

export async function uploadVersion(
  platform: Platform,
  endpoint: EndpointRecord,
  { entry, message, packed }: Upload,
  status: StatusLine,
): Promise<VersionRecord> {
  const size = packed.bytes.length;
  status.show(`uploading ${formatSize(size)}`);
  // Elsewhere each change would be a line of its own.
  const onSent = status.isTerminal
    ? (sent: number) => status.show(describeUpload(sent, size))
    : undefined;
  const versions = platform.endpoints.versions(endpoint.id);
  const { bytes: archive, sha256 } = packed;
  const version = await versions.upload({ archive, entry, sha256, message }, { onSent });
  status.note(`uploaded version ${version.version}, ${formatSize(version.bytes)}`);
  return version;
}

export function describeUpload(sent: number, size: number): string {
  if (sent >= size) return `uploaded ${formatSize(size)}, the platform checks the archive`;
  const percent = Math.floor((100 * sent) / size);
  return `uploading ${formatSize(sent)} of ${formatSize(size)} (${percent} %)`;
}

/** Starts the rollout. @throws CommandError if the platform shows none */
export async function startRollout(
  platform: Platform,
  endpoint: EndpointRecord,
  { timeout, version }: { version: number; timeout: number | undefined },
): Promise<RolloutGoal> {
  const { rollout } = await platform.endpoints.versions(endpoint.id).deploy(version, { timeout });
  if (rollout) return { version, startedAt: rollout.startedAt };
  throw new CommandError(`the platform has not started a rollout of version ${version}`);
}

/** Follows the rollout until it ends or a signal comes; short outages of the platform do not end it. */
export async function follow(
  platform: Platform,
  endpoint: EndpointRecord,
  goal: RolloutGoal,
  status: StatusLine,
): Promise<RolloutEnd> {
  const signals = listenForStop();
  let answeredAt = Date.now();
  let last = endpoint;
  try {
    return await followRollout({
      goal,
      interrupted: signals.first,
      show: (text) => status.show(text),
      read: async () => {
        try {
          last = await platform.endpoints.get(endpoint.id);
          answeredAt = Date.now();
        } catch (error) {
          const isOutage = error instanceof UnreachableError || isTemporary(error);
          if (!isOutage || Date.now() - answeredAt > OUTAGE_MS) throw error;
          status.show('the platform does not respond, trying again');
        }
        return last;
      },
    });
  } finally {
    status.clear();
    signals.release();
  }
}

function isTemporary(error: unknown): boolean {
  return error instanceof ApiError && (error.status === 503 || error.status === 429);
}

/** Runs calls to the platform; refusals become errors without a stack, also after a status line. */
export async function withStatus<T>(status: StatusLine, act: () => Promise<T>): Promise<T> {
  try {
    return await callPlatform(act);
  } finally {
    status.clear();
  }
}
