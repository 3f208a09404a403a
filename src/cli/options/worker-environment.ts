// `serve --worker-env`: variables that the workers of endpoints get from the platform.
import { readVariable } from '../config.ts';
import { list, UsageError } from '../options.ts';

export const workerEnvOption = {
  workerEnv: list({
    placeholder: 'NAME[=VALUE]',
    env: 'MILLRACE_WORKER_ENV',
    help: '--engine process: environment variable for the workers of endpoints; without =VALUE, copied from the platform; workers always get its PATH and NODE_EXTRA_CA_CERTS',
  }),
};

/** With PATH, workers find Python and npm; with NODE_EXTRA_CA_CERTS, npm trusts the same registries as here. */
const INHERITED = ['PATH', 'NODE_EXTRA_CA_CERTS'];

/** @throws UsageError */
export function readWorkerEnvironment(given: readonly string[]): Record<string, string> {
  const variables = given.map((each) => {
    const [, name = '', value] = /^([A-Za-z_]\w*)(?:=(.*))?$/s.exec(each) ?? [];
    if (name === '') {
      throw new UsageError(`--worker-env: must be NAME or NAME=VALUE, got ${JSON.stringify(each)}`);
    }
    if (name.startsWith('MILLRACE_')) {
      throw new UsageError(
        `--worker-env: ${name} belongs to Millrace; set it in the endpoint's template`,
      );
    }
    const own = value ?? readVariable(name);
    if (own === undefined)
      throw new UsageError(`--worker-env: ${name} is not set; give ${name}=VALUE`);
    return [name, own] as const;
  });
  const inherited = INHERITED.flatMap((name) => {
    const value = readVariable(name);
    return value === undefined ? [] : [[name, value] as const];
  });
  return Object.fromEntries([...inherited, ...variables]);
}
