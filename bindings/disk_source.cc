#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/io/file.h"
#include "millstream/source/cifar.h"
#include "millstream/source/columns.h"
#include "millstream/source/csv.h"
#include "millstream/source/idx.h"
#include "millstream/source/npy.h"
#include "millstream/source/packed.h"
#include "millstream/source/write.h"
#include "module.h"

using namespace nanobind::literals;

namespace millstream::python {
namespace {

using Path = std::filesystem::path;
using SourceHandle = Handle<Source>;
using Released = nb::call_guard<GilRelease>;

/// The name of a field, and its files or folders.
using FieldFilesSpec = std::pair<std::string, std::vector<Path>>;

std::vector<FieldFiles> files(const std::vector<FieldFilesSpec>& specs,
                              const std::string& extension) {
  std::vector<FieldFiles> fields;
  for (const auto& [name, paths] : specs) {
    FieldFiles& field = fields.emplace_back(FieldFiles{name, {}});
    for (const Path& path : paths) {
      for (Path& shard : shards_of(path, extension)) {
        field.paths.push_back(std::move(shard));
      }
    }
  }
  return fields;
}

template <typename T>
SourceHandle handle(T source) {
  return {std::make_shared<T>(std::move(source))};
}

SourceHandle npy(const std::vector<FieldFilesSpec>& fields) {
  return handle(npy_source(files(fields, ".npy")));
}

SourceHandle npz(const Path& path, const std::vector<std::string>& names,
                 const Path& cache) {
  return handle(npz_source(path, names, cache));
}

SourceHandle idx(const std::vector<FieldFilesSpec>& specs, const Path& cache) {
  std::vector<FieldFiles> fields;
  for (const auto& [name, paths] : specs) fields.push_back({name, paths});
  return handle(idx_source(fields, cache));
}

CifarKind cifar_kind(int classes) {
  if (classes == 10) return CifarKind::kCifar10;
  if (classes == 100) return CifarKind::kCifar100;
  throw ArgumentError(text("classes must be 10 or 100, not ", classes));
}

SourceHandle cifar(const Path& path, int classes, const std::string& split,
                   const Path& cache) {
  if (split != "train" && split != "test") {
    throw ArgumentError(text("split must be 'train' or 'test', not '", split, "'"));
  }
  const CifarSplit part = split == "train" ? CifarSplit::kTrain : CifarSplit::kTest;
  return {cifar_source(path, cifar_kind(classes), part, cache)};
}

SourceHandle cifar_batches(const std::vector<Path>& paths, int classes) {
  return {cifar_source(paths, cifar_kind(classes))};
}

/// The name, dtype and shape of each field.
using SchemaSpec =
    std::vector<std::tuple<std::string, std::string, std::vector<std::int64_t>>>;

SourceHandle packed(const Path& path, const std::optional<SchemaSpec>& specs,
                    std::int64_t offset) {
  if (!specs) return handle(packed_source(path));
  Schema schema;
  for (const auto& [name, dtype, shape] : *specs) {
    schema.push_back({name, dtype_named(dtype), Shape(shape)});
  }
  return handle(packed_source(path, schema, offset));
}

using Integers =
    nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// Name, dtype and shape of a field, and the file, offset and rows of each chunk.
using ChunkedFieldSpec = std::tuple<std::string, std::string, std::vector<std::int64_t>,
                                    Integers, Integers, Integers>;

SourceHandle file_chunks(const std::vector<Path>& paths,
                         const std::vector<ChunkedFieldSpec>& specs) {
  std::vector<std::shared_ptr<const MappedFile>> opened;
  for (const Path& path : paths) {
    opened.push_back(std::make_shared<const MappedFile>(File(path)));
  }
  std::vector<MappedColumn> columns;
  for (const auto& [name, dtype, shape, chunk_files, offsets, rows] : specs) {
    const Field field = {name, dtype_named(dtype), Shape(shape)};
    std::vector<MappedArray> arrays;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      arrays.push_back({opened.at(static_cast<std::size_t>(chunk_files(i))), offsets(i),
                        byte_size(field), rows(i)});
    }
    columns.emplace_back(field, std::move(arrays));
  }
  return handle(ColumnsSource(std::move(columns)));
}

char character(const std::string& value, const char* what = "delimiter") {
  if (value.size() == 1) return value.front();
  throw ArgumentError(text(what, " must be one character, not '", value, "'"));
}

/// A name, an index, or (begin, end, step) of a range.
using CsvReferenceSpec =
    std::variant<std::string, std::int64_t,
                 std::tuple<std::int64_t, std::optional<std::int64_t>, std::int64_t>>;

/// The name of a field, its columns, and whether it is an array.
using CsvFieldSpec = std::tuple<std::string, std::vector<CsvReferenceSpec>, bool>;

std::vector<CsvField> csv_fields(const std::vector<CsvFieldSpec>& specs) {
  std::vector<CsvField> fields;
  for (const auto& [name, references, is_array] : specs) {
    CsvField& field = fields.emplace_back(CsvField{name, {}, is_array});
    for (const CsvReferenceSpec& reference : references) {
      if (const auto* range = std::get_if<2>(&reference)) {
        const auto& [begin, end, step] = *range;
        field.columns.push_back(CsvRange{begin, end, step});
      } else if (const auto* index = std::get_if<1>(&reference)) {
        field.columns.push_back(*index);
      } else {
        field.columns.push_back(std::get<0>(reference));
      }
    }
  }
  return fields;
}

SourceHandle csv(const Path& path, const std::string& delimiter, bool header,
                 const std::vector<CsvFieldSpec>& fields, bool narrow,
                 const std::optional<std::string>& comment,
                 const std::optional<double>& missing, bool mask) {
  CsvFormat format = {character(delimiter), header, csv_fields(fields)};
  if (comment) format.comment = character(*comment, "comment");
  format.missing = missing;
  format.mask = mask;
  return handle(csv_source(path, format, narrow));
}

void bind_writers(nb::module_& module) {
  module.def(
      "write_npy",
      [](const SourceHandle& source, const std::vector<Path>& paths,
         const Progress& progress) { write_npy(*source.shared, paths, progress); },
      "source"_a, "paths"_a, "progress"_a.none() = nb::none(), Released(),
      "Writes one .npy file per field.");
  module.def(
      "write_idx",
      [](const SourceHandle& source, const std::vector<Path>& paths,
         const Progress& progress) { write_idx(*source.shared, paths, progress); },
      "source"_a, "paths"_a, "progress"_a.none() = nb::none(), Released(),
      "Writes one uncompressed IDX file per field.");
  module.def(
      "write_packed",
      [](const SourceHandle& source, const Path& path, const Progress& progress) {
        write_packed(*source.shared, path, progress);
      },
      "source"_a, "path"_a, "progress"_a.none() = nb::none(), Released(),
      "Writes one file of packed records with a header that describes the fields.");
  module.def(
      "write_csv",
      [](const SourceHandle& source, const Path& path, const std::string& delimiter,
         const Progress& progress) {
        write_csv(*source.shared, path, character(delimiter), progress);
      },
      "source"_a, "path"_a, "delimiter"_a = ",", "progress"_a.none() = nb::none(),
      Released(), "Writes a CSV file with a header line.");
  module.def(
      "csv_defects",
      [](const Path& path, const std::string& delimiter, bool header,
         const std::vector<std::string>& columns, std::size_t most) {
        const File file(path);
        CsvFormat format = {character(delimiter), header};
        for (const std::string& column : columns) format.fields.push_back({column});
        CsvDefects found =
            csv_defects(file.bytes(0, file.size()), path.string(), format, most);
        return std::pair(std::move(found.messages), found.last_line);
      },
      "path"_a, "delimiter"_a, "header"_a, "columns"_a, "most"_a, Released(),
      "Returns a message for each damaged line, and the last line that was checked.");
}

}  // namespace

void bind_disk_source(nb::module_& module) {
  module.def("npy", npy, "fields"_a, Released(), R"(
Opens arrays in .npy files as memory maps.

Args:
  fields: (name, paths) of each array. A path is a file or a folder of files.)");
  module.def("npz", npz, "path"_a, "names"_a, "cache"_a, Released(),
             "Opens the named arrays of an .npz file, or all if `names` is empty.");
  module.def(
      "idx", idx, "fields"_a, "cache"_a, Released(),
      "Opens arrays in IDX files. Gzipped files are decompressed once into `cache`.");
  module.def("cifar", cifar, "path"_a, "classes"_a, "split"_a, "cache"_a, Released(),
             "Opens a split of CIFAR-10 or CIFAR-100 from a folder or an archive.");
  module.def("cifar_batches", cifar_batches, "paths"_a, "classes"_a, Released(),
             "Opens batch files of CIFAR-10 or CIFAR-100, one after the other.");
  module.def("packed", packed, "path"_a, "schema"_a.none(), "offset"_a, Released(), R"(
Opens a file of records of equal size.

Args:
  path: The file.
  schema: (name, dtype, shape) of each field, or None to read it from the file's header.
  offset: The byte offset of the first record; used only with a schema.)");
  module.def("file_chunks", file_chunks, "paths"_a, "fields"_a, R"(
Opens columns whose rows are in chunks of one or more files, as in Arrow files.

Args:
  paths: The files, which are mapped into memory.
  fields: (name, dtype, shape, files, offsets, rows) of each field. The last three are
    int64 arrays with one element per chunk: the position of its file in `paths`, its
    byte offset and its number of rows.)");
  module.def("csv", csv, "path"_a, "delimiter"_a, "header"_a, "fields"_a, "narrow"_a,
             "comment"_a.none() = nb::none(), "missing"_a.none() = nb::none(),
             "mask"_a = false, Released(), R"(
Parses a CSV file of numbers and booleans into memory.

Args:
  path: The file.
  delimiter: The character between cells.
  header: Whether the first line names the columns.
  fields: (name, columns, is_array) of each field; empty for one field per column. A
    column is a name, an index, or (begin, end, step) of a range.
  narrow: Whether batches will hold 32-bit integers. Integers that do not fit then raise
    an error.
  comment: The first character of lines to skip.
  missing: The value for missing cells.
  mask: Whether each field has a second field that tells which values are present.)");
  bind_writers(module);
}

}  // namespace millstream::python
