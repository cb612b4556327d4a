#include "millstream/source/write.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>

#include "millstream/codec/idx.h"
#include "millstream/codec/npy.h"
#include "millstream/codec/packed.h"
#include "millstream/core/convert.h"
#include "millstream/core/error.h"
#include "millstream/io/file_writer.h"
#include "millstream/source/rearrange.h"

namespace millstream {
namespace {

constexpr std::int64_t kBatch = std::int64_t{1} << 22;  // bytes read at a time

/// Calls `write(columns, rows)` for all samples of a source, in batches. The rows of
/// each column are contiguous.
template <typename Write>
void for_batches(const Source& source, const Progress& progress, const Write& write) {
  const Schema& schema = source.schema();
  std::int64_t sample = 1;
  for (const Field& field : schema) sample += byte_size(field);
  const std::int64_t most = std::clamp<std::int64_t>(kBatch / sample, 1, 65536);
  Memory memory;
  std::vector<std::int64_t> indices;
  std::vector<Column> columns(schema.size());
  for (std::int64_t begin = 0; begin < source.size(); begin += most) {
    const std::int64_t rows = std::min(most, source.size() - begin);
    memory.reset();
    indices.resize(static_cast<std::size_t>(rows));
    std::iota(indices.begin(), indices.end(), begin);
    for (std::size_t i = 0; i < schema.size(); ++i) {
      const std::int64_t bytes = byte_size(schema[i]);
      columns[i] = {schema[i].dtype, schema[i].shape, memory.allocate(bytes * rows),
                    bytes, nullptr};
    }
    read_samples(source, indices, columns, memory);
    write(columns, rows);
    if (progress) progress(begin + rows);
  }
}

Shape whole_shape(const Field& field, std::int64_t rows) {
  std::vector<std::int64_t> extents = {rows};
  for (const std::int64_t extent : field.shape.extents()) extents.push_back(extent);
  return Shape(extents);
}

/// Writes one file per field: `header(dtype, shape)`, where `shape` includes the number
/// of samples, and then the rows.
template <typename Header>
void write_arrays(const Source& source, const std::vector<std::filesystem::path>& paths,
                  const Progress& progress, bool big_endian, const Header& header) {
  const Schema& schema = source.schema();
  if (paths.size() != schema.size()) {
    throw ArgumentError(text("a source of ", schema.size(),
                             " fields needs as many files, not ", paths.size()));
  }
  std::vector<std::unique_ptr<FileWriter>> writers;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto bytes = header(schema[i].dtype, whole_shape(schema[i], source.size()));
    writers.push_back(std::make_unique<FileWriter>(paths[i]));
    writers.back()->write(std::as_bytes(std::span(bytes)));
  }
  for_batches(source, progress, [&](const std::vector<Column>& columns, auto rows) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const Column& column = columns[i];
      if (big_endian) {
        swap_bytes(column.data, column.dtype, column.shape.elements() * rows);
      }
      writers[i]->write(
          {column.data, static_cast<std::size_t>(column.row_bytes() * rows)});
    }
  });
  for (const auto& writer : writers) writer->commit();
}

template <typename T>
void put_number(std::string& to, T value) {
  char digits[64];
  const auto written = std::to_chars(digits, digits + sizeof digits, value);
  to.append(digits, written.ptr);
  if constexpr (std::is_floating_point_v<T>) {
    // Without ".0" the column would be read as integers, which have no -0.
    const auto is_whole = [](char c) { return c == '-' || (c >= '0' && c <= '9'); };
    if (std::all_of(digits, written.ptr, is_whole)) to += ".0";
  }
}

/// Appends the elements of a row, each followed by `delimiter`.
void put_row(std::string& to, const Column& column, std::int64_t k, char delimiter) {
  visit(column.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (!is_complex<T>) {
      for (std::int64_t i = 0; i < column.shape.elements(); ++i) {
        T value;
        std::memcpy(&value, column.row(k) + i * static_cast<std::int64_t>(sizeof(T)),
                    sizeof(T));
        if constexpr (is_small_float<T>) {
          put_number(to, static_cast<float>(value));
        } else if constexpr (std::is_same_v<T, bool>) {
          to += value ? '1' : '0';
        } else {
          put_number(to, value);
        }
        to += delimiter;
      }
    }
  });
}

}  // namespace

void write_npy(const Source& source, const std::vector<std::filesystem::path>& paths,
               const Progress& progress) {
  write_arrays(source, paths, progress, false, npy_header);
}

void write_idx(const Source& source, const std::vector<std::filesystem::path>& paths,
               const Progress& progress) {
  write_arrays(source, paths, progress, true, idx_header);
}

void write_packed(const Source& source, const std::filesystem::path& path,
                  const Progress& progress) {
  const std::string header = packed_header(source.schema(), source.size());
  FileWriter writer(path);
  writer.write(header);
  for_batches(source, progress, [&](const std::vector<Column>& columns, auto rows) {
    for (std::int64_t k = 0; k < rows; ++k) {
      for (const Column& column : columns) {
        writer.write({column.row(k), static_cast<std::size_t>(column.row_bytes())});
      }
    }
  });
  writer.commit();
}

void write_csv(const Source& source, const std::filesystem::path& path, char delimiter,
               const Progress& progress) {
  std::string lines;
  for (const Field& field : source.schema()) {
    if (is_complex_dtype(field.dtype)) {
      throw ArgumentError(
          text("'", field.name, "': a CSV file cannot store ", name(field.dtype)));
    }
    for (std::int64_t i = 0; i < field.shape.elements(); ++i) {
      std::string cell = "\"";
      for (const char c : field.name) cell += c == '"' ? "\"\"" : std::string(1, c);
      if (field.shape.rank() > 0) cell += text("_", i);
      lines += cell + "\"" + delimiter;
    }
  }
  if (lines.empty()) throw ArgumentError("a CSV file needs at least one column");
  lines.back() = '\n';
  FileWriter writer(path);
  writer.write(lines);
  for_batches(source, progress, [&](const std::vector<Column>& columns, auto rows) {
    lines.clear();
    for (std::int64_t k = 0; k < rows; ++k) {
      for (const Column& column : columns) put_row(lines, column, k, delimiter);
      lines.back() = '\n';
    }
    writer.write(lines);
  });
  writer.commit();
}

}  // namespace millstream
