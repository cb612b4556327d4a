#include "millstream/source/source.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/source/arrays.h"
#include "millstream/source/combine.h"
#include "module.h"

using namespace nanobind::literals;

namespace millstream::python {
namespace {

using SourceHandle = Handle<Source>;

/// Name, dtype, shape with the leading axis, address, bytes between rows, owner.
using ArraySpec = std::tuple<std::string, std::string, std::vector<std::int64_t>,
                             std::uintptr_t, std::int64_t, nb::object>;

SourceHandle arrays(const std::vector<ArraySpec>& specs, bool narrow) {
  std::vector<Array> leaves;
  for (const auto& [name, dtype, shape, address, stride, owner] : specs) {
    if (shape.empty()) throw ArgumentError(text("'", name, "' has no leading axis"));
    const Shape row(std::span<const std::int64_t>(shape).subspan(1));
    leaves.push_back({{name, dtype_named(dtype), row},
                      shape[0],
                      reinterpret_cast<const std::byte*>(address),
                      stride,
                      kept(owner)});
  }
  auto source = std::make_shared<ArraysSource>(std::move(leaves));
  if (narrow) {
    const nb::gil_scoped_release released;
    source->check_narrow();
  }
  return {source};
}

SourceHandle concatenated(const std::vector<SourceHandle>& handles) {
  std::vector<SharedSource> sources;
  for (const SourceHandle& handle : handles) sources.push_back(handle.shared);
  return {std::make_shared<Concatenated>(std::move(sources))};
}

}  // namespace

void bind_source(nb::module_& module) {
  nb::class_<SourceHandle>(module, "Source", "Where samples live.")
      .def("__len__", [](const SourceHandle& s) { return s.shared->size(); })
      .def_prop_ro(
          "schema", [](const SourceHandle& s) { return described(s.shared->schema()); },
          "(name, dtype, shape) of each field of a sample.")
      .def_prop_ro("resident",
                   [](const SourceHandle& s) { return s.shared->resident(); });

  module.def("arrays", arrays, "specs"_a, "narrow"_a, R"(
Arrays in memory, read where they are.

Args:
  specs: A (name, dtype, shape, address, row stride, owner) for each array.
  narrow: Whether 64-bit integers will be given as 32-bit ones; those that do not fit
    are an error here.)");
  module.def("concatenated", concatenated, "sources"_a,
             "The samples of several sources, one source after the other.");
}

}  // namespace millstream::python
