#include "millstream/transform/transform.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millstream/source/source.h"
#include "millstream/transform/normalize.h"
#include "millstream/transform/reshape.h"
#include "module.h"

using namespace nanobind::literals;

namespace millstream::python {

using TransformHandle = Handle<Transform>;

void bind_transform(nb::module_& module) {
  nb::class_<TransformHandle>(module, "Transform",
                              "A pure function from a sample to a sample.")
      .def("__str__", [](const TransformHandle& t) { return t.shared->str(); });

  module.def(
      "normalize",
      [](std::string field, const std::string& dtype, double scale, double offset) {
        return TransformHandle{std::make_shared<Normalize>(
            std::move(field), dtype_named(dtype), scale, offset)};
      },
      "field"_a, "dtype"_a, "scale"_a = 1.0, "offset"_a = 0.0,
      "Casts a field to a dtype, multiplies by `scale` and adds `offset`.");
  module.def(
      "flatten",
      [](std::string field, int first_axis) {
        return TransformHandle{std::make_shared<Flatten>(std::move(field), first_axis)};
      },
      "field"_a, "first_axis"_a = 0,
      "Joins the axes of a field from `first_axis` on into one axis.");
  module.def(
      "rename",
      [](std::map<std::string, std::string> names) {
        return TransformHandle{std::make_shared<Rename>(std::move(names))};
      },
      "names"_a, "Renames fields.");
  module.def(
      "schemas_after",
      [](const Handle<Source>& source, const std::vector<TransformHandle>& transforms) {
        nb::list schemas;
        Schema schema = source.shared->schema();
        for (const TransformHandle& transform : transforms) {
          schema = transform.shared->flow(schema).schema;
          schemas.append(described(schema));
        }
        return schemas;
      },
      "source"_a, "transforms"_a,
      "Returns (name, dtype, shape) of each field after each transform.");
}

}  // namespace millstream::python
