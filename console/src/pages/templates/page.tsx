// The templates of pods and workers: list, create, change and delete.
import type { TemplateRecord } from '../../../../src/client.ts';
import { RESOURCES } from '../../../../src/wire/routes/routes.ts';
import { RecordForm } from '../../parts/forms/record-form.tsx';
import { Empty } from '../../parts/list/empty.tsx';
import { CreatedCell } from '../../parts/list/record-cells.tsx';
import { ResourceList } from '../../parts/list/resource-list.tsx';
import { platform } from '../../platform/calls.ts';
import { may } from '../../platform/session.ts';

const COLUMNS = [
  { name: 'Image' },
  { name: 'Command' },
  { name: 'Version', isNumber: true },
  { name: 'Created' },
];

const { path } = RESOURCES.templates;

const NEW = {
  label: 'Create a template',
  method: 'POST',
  path,
  initial: { name: 'my-model', image: 'registry.example.com/my-model:1', env: {} },
} as const;

export function Page() {
  return (
    <ResourceList
      title="Templates"
      kind="template"
      resource={platform.templates}
      mayChange={() => may('endpoints:write')}
      form={({ opened, ...ends }) => (
        <RecordForm {...(opened === 'new' ? NEW : describeChange(opened))} {...ends} />
      )}
      columns={COLUMNS}
      cells={({ args, createdAt, handler, image, version }) => (
        <>
          <td class="mono">{image}</td>
          <td class="mono">{handler ?? (args || '–')}</td>
          <td class="number">{version}</td>
          <CreatedCell at={createdAt} />
        </>
      )}
      deletion={() => 'The platform refuses this while an endpoint uses the template.'}
      empty={
        <Empty title="No templates yet" command="millrace templates create --help">
          A template has the image and the settings of pods and workers. Create one:
        </Empty>
      }
    />
  );
}

function describeChange(template: TemplateRecord) {
  // What an update may have.
  const { createdAt: _created, id, version: _version, ...changeable } = template;
  return {
    label: `Change the template ${template.name}`,
    method: 'PATCH',
    path: `${path}/${id}`,
    documentedPath: `${path}/{template}`,
    initial: changeable,
  } as const;
}
