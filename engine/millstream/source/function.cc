#include "millstream/source/function.h"

#include <utility>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"

namespace millstream {

FunctionSource::FunctionSource(std::int64_t size, Schema schema,
                               std::shared_ptr<WorkerPool> worker_pool,
                               std::optional<std::uint32_t> stage,
                               std::uint32_t function_numbers)
    : size_(size),
      schema_(std::move(schema)),
      worker_pool_(std::move(worker_pool)),
      stage_(stage),
      function_numbers_(function_numbers) {
  if (size < 1) {
    throw ArgumentError(text("a source must have at least one sample, not ", size));
  }
}

void FunctionSource::read(const Request& request, Rows& rows) const {
  const auto& [columns, memory] = rows;
  const std::int64_t count = request.rows();
  const auto made = memory.array<Column>(static_cast<std::int64_t>(columns.size()));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Field& field = schema_[i];
    const bool in_place = columns[i].data != nullptr && columns[i].dtype == field.dtype;
    const std::int64_t bytes = byte_size(field);
    made[i] = {field.dtype, field.shape,
               in_place ? columns[i].data : memory.allocate(bytes * count),
               in_place ? columns[i].stride : bytes, nullptr};
  }
  std::span<const std::uint64_t> seeds;
  if (stage_) {
    Request drawing = request;
    drawing.stage = *stage_;
    seeds = drawing.function_seeds(memory);
  }
  worker_pool_->make(
      {request.indices, seeds, {}, made, request.context, request.first});
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].rows != nullptr) {
      for (std::int64_t k = 0; k < count; ++k) columns[i].rows[k] = made[i].row(k);
    } else if (columns[i].data != made[i].data) {
      convert_rows(schema_[i].name, made[i], columns[i], count, request.indices);
    }
  }
}

}  // namespace millstream
