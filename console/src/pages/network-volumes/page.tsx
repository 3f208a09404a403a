// The network volumes: list, create, change and delete. Those of the operator's catalog file are fixed.
import { NETWORK_VOLUME_FIELDS } from '../../../../src/wire/resources/fields.ts';
import { ResourceForm } from '../../parts/forms/resource-form.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { CreatedCell } from '../../parts/list/record-cells.tsx';
import { ResourceList } from '../../parts/list/resource-list.tsx';
import { platform } from '../../platform/calls.ts';
import { may } from '../../platform/session.ts';
import { explainDeletion, Uses } from './uses.tsx';

const COLUMNS = [
  { name: 'Size, GB', isNumber: true },
  { name: 'Data center' },
  { name: 'Used by' },
  { name: 'Created' },
];

export function Page() {
  return (
    <ResourceList
      title="Network volumes"
      kind="volume"
      resource={platform.networkVolumes}
      mayChange={() => may('pods:write')}
      form={(props) => (
        <ResourceForm
          noun="network volume"
          fields={NETWORK_VOLUME_FIELDS}
          target={platform.networkVolumes}
          {...props}
        />
      )}
      columns={COLUMNS}
      cells={(volume) => (
        <>
          <td class="number">{volume.size ?? '–'}</td>
          <td>{volume.dataCenterId}</td>
          <td>
            <Uses volume={volume} />
          </td>
          <CreatedCell at={volume.createdAt} />
        </>
      )}
      deletion={explainDeletion}
      lost="with its content"
      empty={
        <Empty
          title="No network volumes yet"
          command="millrace network-volumes create --name models --size 200"
        >
          A network volume is storage that pods mount and that outlives them. Create one:
        </Empty>
      }
    />
  );
}
