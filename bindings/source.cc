#include "millstream/source/source.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "millstream/core/error.h"
#include "millstream/source/arrays.h"
#include "millstream/source/combine.h"
#include "millstream/source/pack.h"
#include "millstream/source/recast.h"
#include "millstream/source/windows.h"
#include "module.h"

using namespace nanobind::literals;

namespace millstream::python {
namespace {

using SourceHandle = Handle<Source>;

/// The mapped file of an array: path, address and size of the map, and its file offset.
using MapSpec =
    std::tuple<std::filesystem::path, std::uintptr_t, std::int64_t, std::int64_t>;

/// Name, dtype, shape including the leading axis, address, bytes between rows, owner,
/// and the mapped file if there is one.
using ArraySpec =
    std::tuple<std::string, std::string, std::vector<std::int64_t>, std::uintptr_t,
               std::int64_t, nb::object, std::optional<MapSpec>>;

std::shared_ptr<const MappedFile> borrowed(const MapSpec& spec) {
  const auto& [path, address, bytes, offset] = spec;
  const auto* begin = reinterpret_cast<const std::byte*>(address);
  return std::make_shared<const MappedFile>(path, MappedRange{begin, begin + bytes},
                                            offset);
}

SourceHandle arrays(const std::vector<ArraySpec>& specs, bool pack) {
  std::vector<Array> leaves;
  for (const auto& [name, dtype, shape, address, stride, owner, map] : specs) {
    if (shape.empty())
      throw ArgumentError(
          text("'", name, "' must have a leading axis over the samples"));
    const Shape row(std::span<const std::int64_t>(shape).subspan(1));
    leaves.push_back({{name, dtype_named(dtype), row},
                      shape[0],
                      reinterpret_cast<const std::byte*>(address),
                      stride,
                      shared_object(owner)});
    if (map) leaves.back().mapped = borrowed(*map);
  }
  ArraysSource source(std::move(leaves));
  const GilRelease released;
  return {std::make_shared<ArraysSource>(pack ? packed(source) : std::move(source))};
}

std::vector<SharedSource> shared(const std::vector<SourceHandle>& handles) {
  std::vector<SharedSource> sources;
  for (const SourceHandle& handle : handles) sources.push_back(handle.shared);
  return sources;
}

template <typename T>
SourceHandle combined(const std::vector<SourceHandle>& handles) {
  return {std::make_shared<T>(shared(handles))};
}

using Indices =
    nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

SourceHandle subset(const SourceHandle& source, const Indices& indices) {
  std::vector<std::int64_t> samples(indices.data(), indices.data() + indices.size());
  const GilRelease released;
  return {std::make_shared<Subset>(source.shared, std::move(samples))};
}

/// Name, dtype, shape, and whether the axes are transposed.
using RecastSpec =
    std::tuple<std::string, std::string, std::vector<std::int64_t>, bool>;

SourceHandle recast(const SourceHandle& source, const std::vector<RecastSpec>& specs,
                    const std::optional<std::vector<int>>& order) {
  if (order && order->size() != specs.size()) {
    throw ArgumentError(text("order must have one entry for each of the ", specs.size(),
                             " fields, not ", order->size()));
  }
  std::vector<RecastField> fields;
  for (const auto& [name, dtype, shape, transposed] : specs) {
    const std::size_t i = fields.size();
    fields.push_back({{name, dtype_named(dtype), Shape(shape)},
                      order ? (*order)[i] : static_cast<int>(i),
                      transposed});
  }
  return {std::make_shared<Recast>(source.shared, std::move(fields))};
}

/// Reads the samples and returns one array per field.
nb::list read(const SourceHandle& handle, const Indices& indices) {
  const Source& source = *handle.shared;
  const std::span samples(indices.data(), indices.size());
  for (const std::int64_t sample : samples) {
    if (sample >= 0 && sample < source.size()) continue;
    throw ArgumentError(
        text("sample ", sample, " is out of range for ", source.size(), " samples"));
  }
  const auto rows = static_cast<std::int64_t>(samples.size());
  nb::list result;
  std::vector<Column> columns;
  for (const Field& field : source.schema()) {
    const std::int64_t row = byte_size(field);
    auto* data = new std::byte[static_cast<std::size_t>(row * rows)];
    const nb::capsule owner(data, [](void* pointer) noexcept {
      delete[] static_cast<std::byte*>(pointer);
    });
    columns.push_back({field.dtype, field.shape, data, row, nullptr});
    result.append(rows_array(field.dtype, field.shape, data, rows, row, owner));
  }
  {
    const GilRelease released;
    Memory memory;
    read_samples(source, samples, columns, memory);
  }
  return result;
}

}  // namespace

void bind_source(nb::module_& module) {
  nb::class_<SourceHandle>(module, "Source", "Random-access samples.")
      .def("__len__", [](const SourceHandle& s) { return s.shared->size(); })
      .def_prop_ro(
          "schema", [](const SourceHandle& s) { return described(s.shared->schema()); },
          "(name, dtype, shape) of each field of a sample.")
      .def_prop_ro(
          "packable",
          [](const SourceHandle& s) {
            const auto* arrays = dynamic_cast<const ArraysSource*>(s.shared.get());
            const Packable found = arrays ? packable(*arrays) : Packable{};
            return std::pair(found.arrays, found.bytes);
          },
          "How many arrays, and how many bytes, packing would copy.")
      .def("read", read, "indices"_a,
           "Reads the samples and returns one array per field.");

  module.def("arrays", arrays, "specs"_a, "pack"_a = false, R"(
Samples from arrays in memory, which are not copied unless `pack` is True.

Args:
  specs: (name, dtype, shape, address, row stride, owner, map) of each array. For an
    array in a mapped file, map is (path, address, bytes, offset); otherwise None.
  pack: Whether to copy the arrays with short rows to memory in which the rows of a
    sample lie side by side.)");
  module.def("concatenated", combined<Concatenated>, "sources"_a,
             "The samples of several sources, one source after the other.");
  module.def(
      "sliced",
      [](const SourceHandle& source, std::int64_t start, std::int64_t size,
         std::int64_t step) {
        return SourceHandle{std::make_shared<Subset>(source.shared, start, size, step)};
      },
      "source"_a, "start"_a, "size"_a, "step"_a,
      "`size` samples of a source: `start`, `start + step`, and so on.");
  module.def("subset", subset, "source"_a, "indices"_a,
             "The listed samples of a source, in the order of the list.");
  module.def(
      "windows",
      [](const SourceHandle& source, std::int64_t length, std::int64_t stride) {
        return SourceHandle{windows(source.shared, length, stride)};
      },
      "source"_a, "length"_a, "stride"_a,
      "Windows of `length` consecutive samples of a source, `stride` samples apart.");
  module.def("zipped", combined<Zipped>, "sources"_a,
             "Samples that combine the fields of several sources.");
  module.def("recast", recast, "source"_a, "fields"_a, "order"_a.none() = nb::none(),
             R"(
The same samples with other names, dtypes, shapes or order of fields.

Args:
  source: The source.
  fields: (name, dtype, shape, transposed) of each field.
  order: The index of each field in the source; None for the same order.)");
}

}  // namespace millstream::python
