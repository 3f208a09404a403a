// For a path that names no page.
import { Empty } from '../parts/list/empty.tsx';
import { PageHead } from '../parts/page-head.tsx';
import { hrefOf, place } from '../routing/location.ts';

export function Page() {
  return (
    <>
      <PageHead title="Page not found" />
      <Empty title={`No page has the address ${place.read().path}`}>
        Check the address, or <a href={hrefOf('/')}>open the overview</a>.
      </Empty>
    </>
  );
}
