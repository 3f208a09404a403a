// Rewords errors about platform options to name the flag that sets the option.

import { PlatformOptionError } from '../../platform/option-error.ts';
import { CommandError } from '../command.ts';
import { UsageError } from '../options.ts';

const FLAGS: Readonly<Record<string, string>> = {
  dataFolder: '--data',
  store: '--store',
  from: '--from',
  to: '--to',
  nodes: '--node-url',
  'nodes.secrets': '--node-secret-file',
  'nodes.secretFile': '--node-secret-file',
  'nodes.shards': '--shards',
  'nodes.listen': '--node-listen',
  'nodes.advertiseUrl': '--advertise-url',
  'nodes.advertiseGrpcUrl': '--advertise-grpc-url',
  host: '--host',
  port: '--port',
  endpoints: '--endpoint',
  corsOrigins: '--cors',
  keyFile: '--key-file',
  secretsKeyFile: '--secrets-key-file',
  tls: '--tls-cert, --tls-key',
  'tls.key': '--tls-key',
  'grpc.port': '--grpc-port',
  'webhooks.secretFile': '--webhook-secret-file',
  'traces.url': '--trace-url',
  'traces.ratio': '--trace-percent',
  'compute.catalogFile': '--catalog',
  'compute.engine': '--engine',
  'compute.dockerHost': '--docker-host',
  'compute.kubernetes': '--kubeconfig',
  'compute.kubernetes.settings': '--kube-settings',
  'compute.podUser': '--pod-user',
  'compute.workerUrl': '--worker-url',
};

/** Returns other errors unchanged. */
export function explainPlatformError(error: unknown): unknown {
  if (!(error instanceof PlatformOptionError)) return error;
  const { fault, option } = error;
  const problem = error.problem.replaceAll(/`([\w.]+)`/g, (text, name) => FLAGS[name] ?? text);
  const message = `${FLAGS[option] ?? option}: ${problem}`;
  return fault === 'invalid' ? new UsageError(message) : new CommandError(message);
}
