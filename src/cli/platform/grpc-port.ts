// The gRPC port of a platform: its options, and its start. What serves it is loaded only with a port.
import { DEFAULT_KEYLESS_LIMITS, type KeylessLimits } from '../../api/grpc/limits.ts';
import type { GrpcServer, GrpcServerOptions } from '../../api/grpc/server.ts';
import { CommandError } from '../command.ts';
import { describeLimits, readLimits } from '../options/named-limits.ts';
import { integer, text, UsageError } from '../options.ts';
import { readPem } from '../pem-file.ts';

export const grpcOptions = {
  grpcPort: integer({
    min: 0,
    max: 65_535,
    placeholder: 'PORT',
    env: 'MILLRACE_GRPC_PORT',
    help: 'serve workers over gRPC too, on this port; 0 picks a free one; TLS as for HTTPS; default: no gRPC',
  }),
  grpcHost: text({
    placeholder: 'HOST',
    env: 'MILLRACE_GRPC_HOST',
    help: 'address of the gRPC port; default: that of --host',
  }),
  grpcClientCa: text({
    placeholder: 'FILE',
    env: 'MILLRACE_GRPC_CLIENT_CA',
    help: 'PEM file of certificate authorities; gRPC workers must show a client certificate signed by one of them',
  }),
  grpcKeylessLimits: text({
    default: describeLimits(DEFAULT_KEYLESS_LIMITS),
    placeholder: 'LIMITS',
    env: 'MILLRACE_GRPC_KEYLESS_LIMITS',
    section: 'advanced',
    help:
      'limits of gRPC calls without a valid key (health, reflection): request bytes and duration in ms of ' +
      'one call, open calls and health watches of one address; each at least 1; limits that you do not ' +
      'name keep their defaults',
  }),
};

export interface GrpcPort {
  port: number;
  host: string;
  keylessLimits: KeylessLimits;
  tls: GrpcServerOptions['tls'];
}

interface GrpcValues {
  host: string;
  grpcKeylessLimits: string;
  grpcPort: number | undefined;
  grpcHost: string | undefined;
  grpcClientCa: string | undefined;
}

/** Undefined if none is asked for. @throws UsageError */
export function readGrpcPort(
  { grpcClientCa, grpcHost, grpcKeylessLimits, grpcPort, host }: GrpcValues,
  tls: { cert: string; key: string } | undefined,
): GrpcPort | undefined {
  if (grpcPort === undefined) {
    if (grpcHost === undefined && grpcClientCa === undefined) return undefined;
    const given = grpcHost === undefined ? '--grpc-client-ca' : '--grpc-host';
    throw new UsageError(`${given} needs --grpc-port`);
  }
  const given = grpcKeylessLimits;
  const keylessLimits = readLimits('--grpc-keyless-limits', given, DEFAULT_KEYLESS_LIMITS);
  const port = { port: grpcPort, host: grpcHost ?? host, keylessLimits };
  if (grpcClientCa === undefined) return { ...port, tls };
  if (!tls) throw new UsageError('--grpc-client-ca needs --tls-cert and --tls-key');
  return { ...port, tls: { ...tls, clientCa: readPem('--grpc-client-ca', grpcClientCa) } };
}

export type GrpcPortParts = Omit<GrpcServerOptions, 'host' | 'port' | 'tls' | 'keylessLimits'>;

/** @throws CommandError */
export async function openGrpcPort(
  { host, keylessLimits, port, tls }: GrpcPort,
  parts: GrpcPortParts,
): Promise<{ url: string; server: GrpcServer }> {
  const { createGrpcServer } = await import('../../api/grpc/server.ts');
  try {
    const server = createGrpcServer({ ...parts, host, port, keylessLimits, ...(tls && { tls }) });
    return { server, url: (await server.start()).url };
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    // What the system says stands in brackets behind a count of addresses.
    const [, reason = said] = /\[(.*)\]/.exec(said) ?? [];
    throw new CommandError(`--grpc-port: ${port} on ${host} cannot be used: ${reason}`);
  }
}
