#include "millstream/source/made.h"

#include <utility>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"

namespace millstream {
namespace {

void convert_rows(const Field& field, const Column& from, const Column& to,
                  std::span<const std::int64_t> indices) {
  const Convert convert = converter(from.dtype, to.dtype);
  const std::int64_t elements = from.shape.elements();
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const auto row = static_cast<std::int64_t>(k);
    if (convert(from.row(row), to.row(row), elements) == elements) continue;
    throw DataError(text(field.name, ": sample ", indices[k], " holds a ",
                         name(from.dtype), " that ", name(to.dtype), " cannot hold"));
  }
}

}  // namespace

MadeSource::MadeSource(std::int64_t size, Schema schema, std::shared_ptr<Maker> maker)
    : size_(size), schema_(std::move(schema)), maker_(std::move(maker)) {
  if (size < 1) {
    throw ArgumentError(text("a source has at least one sample, not ", size));
  }
}

void MadeSource::read_for(const Making& making, std::int64_t first,
                          std::span<const std::int64_t> indices,
                          std::span<Column> columns, Memory& memory) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  const auto made = memory.array<Column>(static_cast<std::int64_t>(columns.size()));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Field& field = schema_[i];
    const bool in_place = columns[i].data != nullptr && columns[i].dtype == field.dtype;
    const std::int64_t bytes = byte_size(field);
    made[i] = {field.dtype, field.shape,
               in_place ? columns[i].data : memory.allocate(bytes * count),
               in_place ? columns[i].stride : bytes, nullptr};
  }
  maker_->make({indices, {}, {}, made, making, first});
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].rows != nullptr) {
      for (std::int64_t k = 0; k < count; ++k) columns[i].rows[k] = made[i].row(k);
    } else if (columns[i].data != made[i].data) {
      convert_rows(schema_[i], made[i], columns[i], indices);
    }
  }
}

}  // namespace millstream
