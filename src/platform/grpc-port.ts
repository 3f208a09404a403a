// Opens the gRPC port of a platform. Its code is loaded only if a gRPC port is requested.
import { DEFAULT_KEYLESS_LIMITS, type KeylessLimits } from '../api/grpc/limits.ts';
import type { GrpcServer, GrpcServerOptions } from '../api/grpc/server.ts';
import { describeError, PlatformOptionError } from './option-error.ts';

export interface GrpcPort {
  port: number;
  host: string;
  keylessLimits: KeylessLimits;
  tls: GrpcServerOptions['tls'];
}

/** Default: same address as HTTP, on a free port. */
export function completeGrpcPort(
  { host, keylessLimits, port, tls }: Partial<GrpcPort>,
  http: { host: string; tls?: { cert: string; key: string } | undefined },
): GrpcPort {
  const pem = http.tls && { cert: http.tls.cert, key: http.tls.key };
  return {
    host: host ?? http.host,
    port: port ?? 0,
    keylessLimits: keylessLimits ?? DEFAULT_KEYLESS_LIMITS,
    tls: tls ?? pem,
  };
}

export type GrpcPortParts = Omit<GrpcServerOptions, 'host' | 'port' | 'tls' | 'keylessLimits'>;

/** @throws PlatformOptionError */
export async function openGrpcPort(
  { host, keylessLimits, port, tls }: GrpcPort,
  parts: GrpcPortParts,
): Promise<{ url: string; server: GrpcServer }> {
  const { createGrpcServer } = await import('../api/grpc/server.ts');
  try {
    const server = createGrpcServer({ ...parts, host, port, keylessLimits, ...(tls && { tls }) });
    return { server, url: (await server.start()).url };
  } catch (error) {
    const said = describeError(error);
    // The library puts the system's error in brackets after a count of addresses.
    const [, reason = said] = /\[(.*)\]/.exec(said) ?? [];
    const problem = `${port} on ${host} cannot be used: ${reason}`;
    throw new PlatformOptionError('unusable', 'grpc.port', problem);
  }
}
