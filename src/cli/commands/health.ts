// `millrace health`: asks a worker's health port on this machine, for health checks of containers
// and for scripts. The worker decides whether it is healthy.
import { http } from '../../base/net/node-http.ts';
import { CommandError, defineCommand, EXIT } from '../command.ts';
import type { ParsedArguments } from '../option-parser.ts';
import { flag, integer, text, UsageError } from '../options.ts';
import { print } from '../output.ts';

/** A worker's answer is a few hundred bytes; a longer one is from another program. */
const MAX_ANSWER_BYTES = 65_536;

/** Loopback address of a server that listens on every address. */
const LOOPBACK: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' };

const options = {
  ready: flag({
    help: 'check whether the worker can take jobs (/readyz), not only whether it is alive (/healthz)',
  }),
  healthPort: integer({
    min: 1,
    max: 65_535,
    placeholder: 'PORT',
    env: 'MILLRACE_HEALTH_PORT',
    help: 'health port of the worker; required',
  }),
  healthHost: text({
    default: '127.0.0.1',
    placeholder: 'HOST',
    env: 'MILLRACE_HEALTH_HOST',
    help: 'address of the health port',
  }),
  timeoutMs: integer({
    min: 1,
    max: 60_000,
    default: 4_000,
    placeholder: 'MS',
    help: 'time limit for the response, ms',
  }),
};

export const healthCommand = defineCommand({
  name: 'millrace health',
  description: [
    "Calls a worker's health port and prints the response. The command reads the same environment " +
      'variables as the worker, so a container needs no options.',
  ],
  options,
  examples: [
    'millrace health --health-port 9090',
    'millrace health --ready   # with MILLRACE_HEALTH_PORT in the environment',
  ],
  exitCodes: {
    ok: 'healthy',
    failed: 'not healthy, or no response',
  },
  run,
});

async function run({ values }: ParsedArguments<typeof options>): Promise<number> {
  const { healthPort: port, healthHost, timeoutMs } = values;
  if (port === undefined) throw new UsageError('--health-port PORT is required');
  const host = LOOPBACK[healthHost] ?? healthHost;
  const path = values.ready ? '/readyz' : '/healthz';
  const { status, body } = await ask({ host, port, path, timeoutMs });
  void print(`${body}\n`);
  return status === 200 ? EXIT.ok : EXIT.failed;
}

interface ProbeRequest {
  host: string;
  port: number;
  path: string;
  timeoutMs: number;
}

interface ProbeResult {
  status: number | undefined;
  body: string;
}

/** @throws CommandError if no answer comes in time */
async function ask({ host, port, path, timeoutMs }: ProbeRequest): Promise<ProbeResult> {
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    return await new Promise<ProbeResult>((resolve, reject) => {
      const request = http.get({ host, port, path, signal, agent: false }, (response) => {
        let body = '';
        response.setEncoding('utf8');
        response.on('data', (text: string) => {
          body += text;
          if (body.length > MAX_ANSWER_BYTES)
            request.destroy(new Error('the response is too long'));
        });
        response.on('error', reject);
        response.on('end', () => resolve({ status: response.statusCode, body }));
      });
      request.on('error', reject);
    });
  } catch (error) {
    const fault = error instanceof Error ? error.message : String(error);
    const reason = signal.aborted ? `no response within ${timeoutMs} ms` : fault;
    throw new CommandError(`${host} port ${port}: ${reason}`);
  }
}
