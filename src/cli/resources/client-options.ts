// Options of commands that call a running platform, and the errors that its refusals become.
import { describeProxy, readProxies } from '../../base/net/outgoing-proxy.ts';
import { loadUndici, openProxy } from '../../base/net/undici.ts';
import { ApiCaller } from '../../client/api-caller.ts';
import {
  ApiError,
  type Client,
  createClient,
  createPlatform,
  type Platform,
  UnreachableError,
} from '../../client.ts';
import { CommandError } from '../command.ts';
import { inheritEnvironment } from '../config.ts';
import { flagName, keyOption, type OptionTable, text, UsageError } from '../options.ts';
import { chooseTarget, type GivenTarget } from './target.ts';

/** Retries of a command; fewer than for programs, because a person waits. */
const REPEATS = 2;
const UNAUTHORIZED = 401;

export const clientOptions = {
  url: text({
    placeholder: 'URL',
    env: 'MILLRACE_URL',
    help: 'URL of the platform; default: that of the profile, else http://127.0.0.1:8000; for https with your own certificate authorities set NODE_EXTRA_CA_CERTS=FILE',
  }),
  key: keyOption(
    text({
      placeholder: 'KEY',
      env: 'MILLRACE_KEY',
      help: 'API key; default: that of the profile; not needed for `millrace dev` on this machine',
    }),
  ),
  profile: text({
    placeholder: 'NAME',
    help: 'profile of `millrace login`; default: MILLRACE_PROFILE, else the current one',
  }),
};

interface ClientTarget extends GivenTarget {
  endpoint: string;
}

/** @throws UsageError, CommandError */
export function connect({ endpoint, ...given }: ClientTarget): Client {
  const target = chooseTarget(given);
  return checkUrl(() =>
    createClient({ endpoint, ...target, repeats: REPEATS, ...throughProxy(target.url) }),
  );
}

/** Returns a caller for operations that belong to no endpoint. @throws UsageError */
export function connectCaller(given: GivenTarget): ApiCaller {
  const target = chooseTarget(given);
  return checkUrl(
    () => new ApiCaller({ ...target, repeats: REPEATS, ...throughProxy(target.url) }),
  );
}

interface PlatformTarget {
  platform: Platform;
  url: string;
  key: string | undefined;
}

/** Returns the client of a platform, and how to reach it. @throws UsageError, CommandError */
export function connectPlatform(given: GivenTarget): PlatformTarget {
  const { key, url } = chooseTarget(given);
  const platform = checkUrl(() =>
    createPlatform({ key, url, repeats: REPEATS, ...throughProxy(url) }),
  );
  return { platform, key, url };
}

/** The client's option that sends its calls through a proxy, if the environment names one for the URL. @throws TypeError */
export function throughProxy(url: string): { fetch?: typeof fetch } {
  const proxy = readProxies(inheritEnvironment({}))(new URL(url));
  return proxy ? { fetch: fetchThrough(proxy) } : {};
}

/** All requests of a command go to one platform, so one proxy serves the process. */
function fetchThrough(proxy: URL): typeof fetch {
  loadUndici().setGlobalDispatcher(openProxy(proxy));
  return async (input, init) => {
    try {
      return await fetch(input, init);
    } catch (error) {
      const { cause = error } = error instanceof Error ? error : {};
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new TypeError('fetch failed', { cause: new Error(reason + describeProxy(proxy)) });
    }
  };
}

function checkUrl<T>(connectTo: () => T): T {
  try {
    return connectTo();
  } catch (error) {
    throw new UsageError(`--url: ${error instanceof Error ? error.message : String(error)}`);
  }
}

interface BodyFlags {
  options?: OptionTable;
  /** Options of members of the body that have another name. */
  fields?: Readonly<Record<string, string>> | undefined;
}

/** Turns refusals and outages into errors without a stack, which name the flags of members of the body. */
export async function callPlatform<T>(call: () => Promise<T>, flags: BodyFlags = {}): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof UnreachableError) throw new CommandError(error.message);
    if (!(error instanceof ApiError)) throw error;
    const { detail, errors = [], status, title } = error.problem;
    if (status === UNAUTHORIZED && error.sent) throw new CommandError(explainKey(error.sent));
    // The detail of a failed validation may repeat its first error, or all of them.
    const isRepeated = errors.some((each) => detail.includes(each));
    const first = isRepeated ? `${title} (${status}):` : error.message;
    throw new CommandError(
      [first, ...errors.map((each) => `  ${nameFlag(each, flags)}`)].join('\n'),
    );
  }
}

function explainKey({ hasKey, url }: { url: string; hasKey: boolean }): string {
  const found = hasKey
    ? 'refuses the API key, which is invalid, unknown or expired'
    : 'needs an API key';
  return `${url} ${found}: set MILLRACE_KEY, pass --key, or run \`millrace login\``;
}

/** `workersMax: must be …` becomes `--workers-max: must be …`. */
function nameFlag(error: string, { fields = {}, options = {} }: BodyFlags): string {
  const [path = '', field = ''] = /^([A-Za-z]+)[^:\s]*(?=: )/.exec(error) ?? [];
  const name = Object.hasOwn(fields, field) ? (fields[field] ?? '') : field;
  if (!Object.hasOwn(options, name)) return error;
  const flag = flagName(name);
  return path === name
    ? flag + error.slice(path.length)
    : `${flag} (${path})${error.slice(path.length)}`;
}
