#include "millstream/transform/transform.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millstream/source/source.h"
#include "millstream/transform/normalize.h"
#include "millstream/transform/origin.h"
#include "millstream/transform/random_crop.h"
#include "millstream/transform/random_flip.h"
#include "millstream/transform/reshape.h"
#include "module.h"

using namespace nanobind::literals;

namespace millstream::python {

using TransformHandle = Handle<Transform>;

void bind_transform(nb::module_& module) {
  nb::class_<TransformHandle>(module, "Transform",
                              "A pure function from a sample to a sample.")
      .def("__str__", [](const TransformHandle& t) { return t.shared->str(); })
      .def_prop_ro(
          "draws", [](const TransformHandle& t) { return t.shared->draws(); },
          "Whether the transform draws random numbers.");

  module.def(
      "normalize",
      [](std::string field, const std::string& dtype, double scale, double offset,
         const PerChannel& mean, const PerChannel& std) {
        return TransformHandle{std::make_shared<Normalize>(
            std::move(field), dtype_named(dtype), scale, offset, mean, std)};
      },
      "field"_a, "dtype"_a, "scale"_a = 1.0, "offset"_a = 0.0, "mean"_a = 0.0,
      "std"_a = 1.0,
      "Casts a field to a dtype and computes `(x * scale + offset - mean) / std`.");
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
      "origin", [] { return TransformHandle{std::make_shared<Origin>()}; },
      "Appends the epoch and the index of each sample, as two uint32 fields.");
  module.def(
      "random_flip",
      [](std::vector<std::string> fields, int axis, double probability) {
        return TransformHandle{
            std::make_shared<RandomFlip>(std::move(fields), axis, probability)};
      },
      "fields"_a, "axis"_a, "probability"_a,
      "Flips samples along an axis, with a probability.");
  module.def(
      "random_crop",
      [](std::vector<std::string> fields, std::pair<std::int64_t, std::int64_t> size,
         std::pair<std::int64_t, std::int64_t> padding) {
        return TransformHandle{std::make_shared<RandomCrop>(
            std::move(fields), HeightWidth{size.first, size.second},
            HeightWidth{padding.first, padding.second})};
      },
      "fields"_a, "size"_a, "padding"_a,
      "Crops images at a random offset, after padding them with zeros.");
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
