// Options of the gRPC port.
import { DEFAULT_KEYLESS_LIMITS } from '../../api/grpc/limits.ts';
import type { GrpcPort } from '../../platform/listeners.ts';
import { integer, text, UsageError } from '../options.ts';
import { describeLimits, readLimits } from './limit-options.ts';
import { readCertificates } from './tls-options.ts';

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
    help: 'PEM file of certificate authorities; gRPC workers must show a client certificate signed by one of them; the file is read again when it changes',
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

interface GrpcValues {
  host: string;
  grpcKeylessLimits: string;
  grpcPort: number | undefined;
  grpcHost: string | undefined;
  grpcClientCa: string | undefined;
}

/** Undefined if no gRPC port is requested. @throws UsageError */
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
  return { ...port, tls: { ...tls, clientCa: readCertificates('--grpc-client-ca', grpcClientCa) } };
}
