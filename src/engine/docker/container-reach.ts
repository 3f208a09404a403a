// Reads from an engine's description how its containers reach its machine. Pure.
import { isIPv4 } from 'node:net';
import { z } from 'zod';
import type { ContainerReach } from '../engine.ts';

const DESKTOP = 'Docker Desktop';
const PODMAN = 'Podman Engine';

const description = z.object({
  info: z.object({ OperatingSystem: z.string().nullish() }),
  version: z.object({ Components: z.array(z.object({ Name: z.string() })).nullish() }),
  /** The default network. Undefined: the engine has none. */
  bridge: z
    .object({
      IPAM: z.object({
        Config: z
          .array(z.object({ Gateway: z.string().nullish(), Subnet: z.string().nullish() }))
          .nullish(),
      }),
    })
    .optional(),
});

/** `description`: answers of the engine about itself and its default network. */
export function readReach(given: Record<'info' | 'version' | 'bridge', unknown>): ContainerReach {
  const { bridge, info, version } = description.parse(given);
  const gateways =
    bridge?.IPAM.Config?.flatMap(({ Gateway, Subnet }) => Gateway ?? findFirstAddress(Subnet)) ??
    [];
  const gateway = gateways.find((address) => isIPv4(address)) ?? null;
  if (version.Components?.some(({ Name }) => Name === PODMAN)) return { gateway, hostName: 'none' };
  if (info.OperatingSystem?.includes(DESKTOP)) return { gateway, hostName: 'loopback' };
  return { gateway, hostName: gateway === null ? 'none' : 'gateway' };
}

/**
 * An engine that has never been restarted names only the subnet of its default network. It gives itself the first address.
 * @param subnet such as 172.17.0.0/16
 */
function findFirstAddress(subnet: string | null | undefined): string[] {
  const [network = ''] = subnet?.split('/') ?? [];
  return isIPv4(network) && network.endsWith('.0') ? [network.replace(/0$/, '1')] : [];
}
