// The templates of pods and workers.
import type { TemplateRecord } from '../../../../src/client.ts';
import { RESOURCES } from '../../../../src/wire/routes.ts';
import { Confirm } from '../../parts/confirm.tsx';
import { CreatePanel } from '../../parts/create-panel.tsx';
import { Empty } from '../../parts/empty.tsx';
import { PageHead } from '../../parts/page-head.tsx';
import { Table } from '../../parts/table.tsx';
import { Time } from '../../parts/time.tsx';
import { platform } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { LoadProblem } from '../endpoint/frame.tsx';

const COLUMNS = [
  { name: 'Template' },
  { name: 'Image' },
  { name: 'Handler or arguments' },
  { name: 'Version', isNumber: true },
  { name: 'Created' },
  { name: 'Actions', isHidden: true },
];

export function Page() {
  const polled = usePolled({
    key: 'templates',
    load: async (signal) => (await platform.templates.page({ limit: 1_000, signal })).items,
    everyMs: 10_000,
  });
  const { data, reload } = polled;
  return (
    <>
      <PageHead title="Templates" />
      {may('endpoints:write') && (
        <CreatePanel
          label="Create a template"
          path={RESOURCES.templates.path}
          example={{ name: 'my-model', image: 'registry.example.com/my-model:1', env: {} }}
          onCreated={reload}
        />
      )}
      <LoadProblem polled={polled} />
      {data?.length === 0 && (
        <Empty title="No templates yet" command="millrace templates create --help">
          A template has the image and the settings of pods and workers. Create one:
        </Empty>
      )}
      {data && data.length > 0 && (
        <Table label="Templates" columns={COLUMNS}>
          {data.map((template) => (
            <Row key={template.id} template={template} reload={reload} />
          ))}
        </Table>
      )}
    </>
  );
}

function Row({ reload, template }: { template: TemplateRecord; reload: () => void }) {
  const { args, createdAt, handler, id, image, name, version } = template;
  const remove = async () => {
    await platform.templates.delete(id);
    reload();
  };
  return (
    <tr>
      <th scope="row">
        {name}
        <small class="mono">{id}</small>
      </th>
      <td class="mono">{image}</td>
      <td class="mono">{handler ?? (args || '–')}</td>
      <td class="number">{version}</td>
      <td class="nowrap">
        <Time at={createdAt} />
      </td>
      <td class="number">
        {may('endpoints:write') && (
          <Confirm
            label="Delete"
            question={`Delete the template ${name}?`}
            isDangerous
            act={remove}
          >
            <p>The platform refuses this while an endpoint uses the template.</p>
          </Confirm>
        )}
      </td>
    </tr>
  );
}
