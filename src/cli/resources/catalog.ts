// `millrace catalog`: what can be had, from the command line.
import { connectList } from '../../client/resources.ts';
import type { CpuFlavor, GpuType } from '../../wire/resources/catalog.ts';
import { CATALOG_ROUTES } from '../../wire/routes.ts';
import type { Command } from '../command.ts';
import type { OptionValues } from '../options.ts';
import { connectCaller } from './client-options.ts';
import {
  describeActions,
  type ListKind,
  listOptions,
  type ResourceActions,
  runAction,
  showList,
} from './resource-command.ts';

type Values = OptionValues<typeof listOptions>;

const gpuKind: ListKind<GpuType> = {
  plural: 'gpus',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    GB: ({ memory }) => String(memory),
    'USD/H': ({ price }) => String(price),
    FREE: ({ available, total }) => `${available} of ${total}`,
  },
};

const cpuKind: ListKind<CpuFlavor> = {
  plural: 'cpus',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    VCPUS: ({ vcpuCounts }) => vcpuCounts.join(','),
    'MAX GB': ({ maxMemory }) => String(maxMemory),
    'USD/H PER VCPU': ({ vcpuPrice }) => String(vcpuPrice),
    'USD/H PER GB': ({ memoryPrice }) => String(memoryPrice),
  },
};

const actions: ResourceActions<Values> = {
  gpus: {
    ...{ takes: 'nothing', help: 'list GPU types with their price and how many are free' },
    act: ({ caller, values }) => {
      const { path } = CATALOG_ROUTES.listGpuTypes;
      return showList(
        connectList<GpuType>({ caller, path, member: gpuKind.plural }),
        gpuKind,
        values,
      );
    },
  },
  cpus: {
    ...{ takes: 'nothing', help: 'list CPU flavours with their prices' },
    act: ({ caller, values }) => {
      const { path } = CATALOG_ROUTES.listCpuFlavors;
      return showList(
        connectList<CpuFlavor>({ caller, path, member: cpuKind.plural }),
        cpuKind,
        values,
      );
    },
  },
};

const { exitCodes, lines, positionals } = describeActions(actions, 'type');

export const catalogCommand: Command = {
  name: 'millrace catalog',
  summary: 'list the GPU types and CPU flavours of a platform',
  description: ['Calls a running platform.', ...lines],
  positionals,
  options: listOptions,
  examples: ['millrace catalog gpus', 'millrace catalog cpus --json | jq .cpus[].id'],
  exitCodes,
  run: (args) => runAction({ options: listOptions, actions, connect: connectCaller, args }),
};
