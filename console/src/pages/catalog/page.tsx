// The catalog: GPU types and CPU flavors with prices and what is free, and the data centers.
import type { DataCenter } from '../../../../src/client.ts';
import { listCapabilities } from '../../../../src/wire/engine/capability-texts.ts';
import { Empty } from '../../parts/list/empty.tsx';
import { Table } from '../../parts/list/table.tsx';
import { PageHead } from '../../parts/page-head.tsx';
import { platform } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { LoadProblem } from '../endpoint/frame.tsx';

const GPU_COLUMNS = [
  { name: 'GPU type' },
  { name: 'Memory, GB', isNumber: true },
  { name: 'USD/h', isNumber: true },
  { name: 'Free', isNumber: true },
  { name: 'Total', isNumber: true },
];
const DATA_CENTER_COLUMNS = [
  { name: 'Data center' },
  { name: 'Engine' },
  { name: 'GPU types' },
  { name: 'Network volumes' },
  { name: 'USD per GB and month', isNumber: true },
];
const CPU_COLUMNS = [
  { name: 'CPU flavor' },
  { name: 'vCPUs' },
  { name: 'Memory up to, GB', isNumber: true },
  { name: 'USD/h per vCPU', isNumber: true },
  { name: 'USD/h per GB', isNumber: true },
];

export function Page() {
  const polled = usePolled({
    key: 'catalog',
    load: async (signal) => {
      const [gpus, cpus, dataCenters] = await Promise.all([
        platform.catalog.gpus.page({ limit: 1_000, signal }),
        platform.catalog.cpus.page({ limit: 1_000, signal }),
        platform.catalog.dataCenters.page({ limit: 1_000, signal }),
      ]);
      return { gpus: gpus.items, cpus: cpus.items, dataCenters: dataCenters.items };
    },
    everyMs: 10_000,
  });
  const { data } = polled;
  return (
    <>
      <PageHead title="Catalog" />
      <LoadProblem polled={polled} />
      {data && (
        <section>
          <h2>GPUs</h2>
          {data.gpus.length === 0 ? (
            <Empty title="The engine has no GPUs" command="millrace doctor">
              Check what this machine has:
            </Empty>
          ) : (
            <Table label="GPU types" columns={GPU_COLUMNS}>
              {data.gpus.map(({ available, id, memory, name, price, total }) => (
                <tr key={id}>
                  <th scope="row">
                    {name}
                    <small class="mono">{id}</small>
                  </th>
                  <td class="number">{memory}</td>
                  <td class="number">{price}</td>
                  <td class="number">{available}</td>
                  <td class="number">{total}</td>
                </tr>
              ))}
            </Table>
          )}
        </section>
      )}
      {data && data.cpus.length > 0 && (
        <section>
          <h2>CPUs</h2>
          <Table label="CPU flavors" columns={CPU_COLUMNS}>
            {data.cpus.map(({ id, maxMemory, memoryPrice, name, vcpuCounts, vcpuPrice }) => (
              <tr key={id}>
                <th scope="row">
                  {name}
                  <small class="mono">{id}</small>
                </th>
                <td>{vcpuCounts.join(', ')}</td>
                <td class="number">{maxMemory}</td>
                <td class="number">{vcpuPrice}</td>
                <td class="number">{memoryPrice}</td>
              </tr>
            ))}
          </Table>
        </section>
      )}
      {data && <DataCenters dataCenters={data.dataCenters} />}
      {data?.dataCenters[0] && <Engine {...data.dataCenters[0]} />}
    </>
  );
}

function DataCenters({ dataCenters }: { dataCenters: readonly DataCenter[] }) {
  return (
    <section>
      <h2>Data centers</h2>
      <Table label="Data centers" columns={DATA_CENTER_COLUMNS}>
        {dataCenters.map(({ default: isDefault, engine, gpuTypes, id, name, ...volumes }) => (
          <tr key={id}>
            <th scope="row">
              {name}
              <small class="mono">{id}</small>
            </th>
            <td>
              {engine ?? 'none: pods cannot run'}
              {isDefault && <small>Default for pods that name none</small>}
            </td>
            <td>{gpuTypes.join(', ') || '–'}</td>
            <td>{volumes.networkVolumes ? 'Yes' : 'No'}</td>
            <td class="number">{volumes.networkVolumePrice}</td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

const ENGINE_COLUMNS = [{ name: 'Capability' }, { name: 'What the engine does' }];

/** All data centers have the same engine. */
function Engine({ capabilities, engine }: Pick<DataCenter, 'capabilities' | 'engine'>) {
  if (!capabilities) return null;
  return (
    <section>
      <h2>Engine: {engine}</h2>
      <Table label="What the engine can do" columns={ENGINE_COLUMNS}>
        {listCapabilities(capabilities).map(({ name, value }) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{value}</td>
          </tr>
        ))}
      </Table>
    </section>
  );
}
